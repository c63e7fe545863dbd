"""Frames to calls on the core and back. Pure. One folder per protocol, each with the same four files."""
