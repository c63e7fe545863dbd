"""The ledger's data on Spark: tables, answers, bulk calls, a data source, SQL. `polydomo.spark` is its public face."""
