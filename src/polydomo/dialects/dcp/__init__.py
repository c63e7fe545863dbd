"""The DagBox Communication Protocol, version 1."""
