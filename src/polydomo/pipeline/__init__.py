"""The data pipeline on Spark: tables, reports, bulk calls, a data source, SQL. `polydomo.spark` is its public API."""
