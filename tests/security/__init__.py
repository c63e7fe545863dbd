"""Tests of polydomo.security."""
