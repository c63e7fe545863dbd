"""Table definitions: bronze (checked segments), silver (clean rows), gold (aggregates)."""
