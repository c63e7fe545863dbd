"""Tests of hostile peers against a real broker. `make abuse` sets `full`; the suite runs them at a smaller size."""
