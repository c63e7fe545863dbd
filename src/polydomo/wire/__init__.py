"""Wire formats: bytes to frames and back, without a socket and without a clock."""
