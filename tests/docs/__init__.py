"""Tests of the documentation: commands and snippets are run, links are followed, the reference is regenerated."""
