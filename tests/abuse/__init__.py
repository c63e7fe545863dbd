"""Hostile peers against a real broker. `make abuse` sets `full`; the suite runs the same tests at a smaller size."""
