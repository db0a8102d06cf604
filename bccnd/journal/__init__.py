"""The journal: Parquet files of what receivers saw, and what is needed to write and read them. Needs pyarrow."""
