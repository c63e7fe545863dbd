"""Fuzz targets, one per parser: see `python -m tests.fuzz --list` and `python -m tests.fuzz --help`."""
