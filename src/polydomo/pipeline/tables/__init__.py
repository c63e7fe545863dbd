"""The tables: bronze (checked), silver (clean rows), gold (answers)."""
