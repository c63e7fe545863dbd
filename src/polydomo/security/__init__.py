"""Keys of peers and the principals that they stand for."""
