"""The ledger: one row per ended job and per lifecycle event, in Parquet segments. Needs no Spark."""
