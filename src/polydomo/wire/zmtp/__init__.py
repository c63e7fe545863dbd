"""ZMTP 3.1 and 3.0 (RFC 37 and 23): greeting, handshake and traffic, for both ends of a connection."""
