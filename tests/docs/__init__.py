"""The documentation: its commands and snippets are run, its links followed, its reference made anew."""
