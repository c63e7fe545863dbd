"""What happened to every job, as rows in Parquet segments. Needs no Spark."""
