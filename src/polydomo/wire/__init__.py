"""Bytes to frames and back. Pure: no socket, no clock."""
