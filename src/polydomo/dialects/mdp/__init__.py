"""The Majordomo Protocol: RFC 18 (MDP/0.2), RFC 7 (MDP/0.1), and the form of the majortomo package."""
