"""What each table is, in SQL for DuckDB: one file a table, and those of the steps before."""
