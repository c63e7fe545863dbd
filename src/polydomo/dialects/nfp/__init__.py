"""NORFAB's protocol (NFP), in the specification's form and in that of norfab 0.25."""
