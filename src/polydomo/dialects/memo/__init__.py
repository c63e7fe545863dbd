"""MemoDB's protocol, `memo01`."""
