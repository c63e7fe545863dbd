"""The `polydomo` command."""
