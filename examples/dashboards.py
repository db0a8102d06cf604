"""Writes a DuckDB file with a view of each table of the pipeline, as of the last build, for dashboards."""

import os

import duckdb
from deltalake import DeltaTable

tables, target = "/var/lib/bccnd/tables", "/var/lib/bccnd/dashboards.duckdb"
builds = DeltaTable(f"{tables}/builds").to_pyarrow_table().sort_by("finished_ts")
with duckdb.connect(f"{target}.new") as database:
    for name, version in builds["versions"][-1].as_py():
        table = DeltaTable(f"{tables}/{name}", version=version)
        if name.startswith("_"):
            continue
        if files := table.file_uris():
            database.read_parquet(files, hive_partitioning=True).create_view(name)
        else:
            database.from_arrow(table.to_pyarrow_table()).create(name)
os.replace(f"{target}.new", target)
