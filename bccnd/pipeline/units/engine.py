"""DuckDB within a task: reads Parquet from any file system, runs the named SQL, writes files as the tables need them.

Invariant: nothing is installed or loaded at run time, memory and folder of the engine are bounded and its own, and the
same rows give the same files, whatever the number of threads.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bccnd.pipeline import schema
from bccnd.pipeline.lake.place import Root
from bccnd.pipeline.schema import TableFile

#: rows of a group in a file
_GROUP: Final = 131_072
#: settings of each connection
_OF_CONNECTION: Final = "SET TimeZone = 'UTC'; SET enable_progress_bar = false"
#: hosts that fit into a number as a set; larger fleets have strings of bits
NUMBER_OF_HOSTS: Final = 62


@contextlib.contextmanager
def opened(memory_mb: int, threads: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database of this process's engine, which holds at most so much and spills the rest to a folder."""
    name = f"work_{secrets.token_hex(6)}"
    with _engine(memory_mb, threads).cursor() as engine:
        engine.execute(f"{_OF_CONNECTION}; ATTACH ':memory:' AS {name}; USE {name}")
        try:
            yield engine
        finally:
            engine.execute(f"USE memory; DETACH {name}")


@functools.cache
def _engine(memory_mb: int, threads: int) -> duckdb.DuckDBPyConnection:
    """The engine, which takes longer to start than a small table takes to make."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_mb}MB",
        "threads": threads,
        "temp_directory": f"{spill_folder()}/{memory_mb}-{threads}",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "preserve_insertion_order": False,
    }
    return duckdb.connect(":memory:", config=settings)


def close() -> None:
    """End the engine: a worker of Spark ends without a word."""
    _engine.cache_clear()
    if spill_folder.cache_info().currsize:
        shutil.rmtree(spill_folder(), ignore_errors=True)
        spill_folder.cache_clear()


@functools.cache
def spill_folder() -> str:
    """A folder for what memory has no room for, which goes with this process. No other user can read it."""
    folder = tempfile.mkdtemp(prefix="bccn-duckdb-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def sql(name: str) -> str:
    """The text of a file of SQL."""
    return resources.files("bccnd.pipeline.sql").joinpath(f"{name}.sql").read_text()


def set_variables(engine: duckdb.DuckDBPyConnection, **values: int) -> None:
    for name, value in values.items():
        engine.execute(f"SET VARIABLE {name} = {value}::BIGINT")


def define_sets(engine: duckdb.DuckDBPyConnection, hosts: Sequence[str]) -> None:
    """Make the table ``hosts`` (id, host, mask), and what computes with sets of hosts, as the number of hosts needs."""
    wide = len(hosts) > NUMBER_OF_HOSTS
    width = max(len(hosts), 1)
    masks = [f"{1 << index:0{width}b}" if wide else 1 << index for index in range(len(hosts))]
    kind = pa.string() if wide else pa.int64()
    table = pa.table(
        {
            "id": pa.array(range(len(hosts)), pa.int32()),
            "host": pa.array(hosts, pa.string()),
            "m": pa.array(masks, kind),
        }
    )
    engine.register("given_hosts", table)
    engine.execute(f"CREATE TABLE hosts AS SELECT id, host, m::{'BIT' if wide else 'BIGINT'} AS mask FROM given_hosts")
    no_hosts = f"'{'0' * width}'::BIT" if wide else "0::BIGINT"
    engine.execute(f"CREATE MACRO no_hosts() AS {no_hosts}")
    engine.execute(
        f"CREATE MACRO contains(hosts, mask) AS {'bit_count(hosts & mask)' if wide else 'hosts & mask'} <> 0"
    )


def read(
    engine: duckdb.DuckDBPyConnection,
    name: str,
    root: Root,
    paths: Sequence[str],
    columns: Mapping[str, str],
    *,
    foreign: bool = False,
) -> None:
    """Make a view of these columns (name -> type) of files below a root, in whatever order they have them. Of
    ``foreign`` files a column may be missing, and is null."""
    wanted = ", ".join(columns)
    if not paths:
        empty = ", ".join(f"NULL::{kind} AS {column}" for column, kind in columns.items())
        engine.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT {empty} LIMIT 0")
    elif root.is_local:
        places = ", ".join(_quoted(f"{root.path}/{path}") for path in paths)
        source = f"read_parquet([{places}], hive_partitioning = false, union_by_name = {foreign})"
        if foreign:
            present = {row[0] for row in engine.execute(f"DESCRIBE FROM {source}").fetchall()}
            wanted = ", ".join(
                f"{column if column in present else 'NULL'}::{kind} AS {column}" for column, kind in columns.items()
            )
        engine.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT {wanted} FROM {source}")
    else:
        absolute = [f"{root.path}/{path}" for path in paths]
        dataset = ds.dataset(absolute, filesystem=root.filesystem, format="parquet", schema=_arrow(columns))
        engine.register(f"{name}_files", dataset)
        engine.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT {wanted} FROM {name}_files")


def _quoted(path: str) -> str:
    """A path as the engine's text, which takes it for a pattern."""
    plain = re.sub(r"[\[*?]", lambda special: f"[{special[0]}]", path)
    return "'" + plain.replace("'", "''") + "'"


_ARROW: Final = {
    "VARCHAR": pa.string(),
    "BIGINT": pa.int64(),
    "UBIGINT": pa.uint64(),
    "INTEGER": pa.int32(),
    "UTINYINT": pa.uint8(),
    "BOOLEAN": pa.bool_(),
    "BLOB": pa.binary(),
    "VARCHAR[]": pa.list_(pa.string()),
    "TIMESTAMPTZ": pa.timestamp("us", tz="UTC"),
    "DOUBLE": pa.float64(),
}


def _arrow(columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()])


def types(columns: pa.Schema) -> dict[str, str]:
    """The columns of a table with the engine's types."""
    names = {kind: name for name, kind in _ARROW.items()}
    # Writers name the element of a list as they like.
    kinds = ((field.name, pa.list_(pa.string()) if pa.types.is_list(field.type) else field.type) for field in columns)
    return {name: names[kind] for name, kind in kinds}


def give(
    engine: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str], rows: Sequence[Sequence[Any]]
) -> None:
    """Make a table of some rows."""
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    arrays = [pa.array(column, kind.type) for column, kind in zip(values, _arrow(columns), strict=True)]
    engine.register("given_rows", pa.table(arrays, names=list(columns)))
    casts = ", ".join(f"{column}::{kind} AS {column}" for column, kind in columns.items())
    engine.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {casts} FROM given_rows")
    engine.unregister("given_rows")


class Query(NamedTuple):
    """A query that makes rows of a table, below the tables or in the run's own folder; ``columns`` are by default those
    of the table."""

    table: str
    text: str
    columns: pa.Schema | None = None


def write_all(
    engine: duckdb.DuckDBPyConnection, root: Root, run: str, day: str, queries: Sequence[Query], threads: int
) -> list[TableFile]:
    """Write the rows of several queries, side by side: sorting and writing the rows of one leaves processors idle."""
    variables = dict(engine.execute("SELECT name, value FROM duckdb_variables()").fetchall())
    (database,) = engine.execute("SELECT current_database()").fetchall()[0]

    def put(query: Query) -> list[TableFile]:
        with engine.cursor() as cursor:
            cursor.execute(f"{_OF_CONNECTION}; USE {database}")
            set_variables(cursor, **variables)
            return write(cursor, root, run, query.table, day, query.text, query.columns)

    with ThreadPoolExecutor(threads) as pool:
        return [file for files in pool.map(put, queries) for file in files]


def write(
    engine: duckdb.DuckDBPyConnection,
    root: Root,
    run: str,
    table: str,
    day: str,
    query: str,
    columns: pa.Schema | None = None,
) -> list[TableFile]:
    """Write the rows of a query, cast to the columns of a table, as one file of a day; none if there are none. Each
    attempt has a name of its own: a task that is believed dead may still be writing."""
    shape = columns if columns is not None else schema.ALL[table][0]
    path = f"day={day}/part-{run}-{secrets.token_hex(6)}.parquet"
    place = f"{root.path}/{table}/{path}"
    names = ", ".join(shape.names)
    reader = engine.sql(f"SELECT {names} FROM ({query})").to_arrow_reader(_GROUP)
    writer: pq.ParquetWriter | None = None
    rows = 0
    try:
        for batch in reader:
            if not batch.num_rows:
                continue
            if writer is None:
                if root.is_local:
                    root.filesystem.create_dir(place.rpartition("/")[0], recursive=True)
                writer = pq.ParquetWriter(
                    place, shape, filesystem=root.filesystem, compression="zstd", write_page_checksum=True
                )
            arrays = [batch.column(field.name).cast(field.type) for field in shape]
            writer.write_table(pa.Table.from_arrays(arrays, schema=shape), row_group_size=_GROUP)
            rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        return []
    return [TableFile(table, path, day, rows, root.filesystem.get_file_info(place).size)]
