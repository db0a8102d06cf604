"""Puts together what spans shares, and what spans days: from the parts of units to tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import duckdb

from bccnd.journal.file_names import DAY
from bccnd.pipeline import schema
from bccnd.pipeline.lake.place import Root
from bccnd.pipeline.schema import TableFile
from bccnd.pipeline.units import engine as duck
from bccnd.pipeline.units import work
from bccnd.pipeline.units.unit import SHARED
from bccnd.pipeline.units.work import Task

#: rows of `integrity` for one minute, receiver and verdict: more than a reader looks at, few beside the datagrams
CAP: Final = 1000
#: parts -> the table that is made of them, and its SQL
_COMBINED: Final = {
    "receiver_sets": ("receiver_sets", "receiver_sets_of_shares"),
    "channel_loss": ("channel_loss", "channel_loss_of_shares"),
    "refused": ("integrity", "integrity"),
}


def run_combine(task: Task) -> list[TableFile]:
    """Make the tables of days that sources of several shares have rows in common in."""
    root, written = Root(task.tables), []
    for day in task.days:
        parts: Mapping[str, list[str]] = work.get(root, task, f"parts-{day}")
        with duck.opened(task.memory_mb, task.threads) as engine:
            duck.set_variables(engine, cap=CAP)
            for part, columns in SHARED.items():
                duck.read(engine, part, root, parts.get(part, ()), duck.types(columns))
                table, query = _COMBINED[part]
                written += duck.write(engine, root, task.run, table, day, duck.sql(query))
    return written


def run_epochs(task: Task) -> list[TableFile]:
    """Make the table epochs on all days that change."""
    return _replaced(task, "epochs", schema.EPOCHS)


def run_liveness(task: Task) -> list[TableFile]:
    """Make the table liveness on all days that change: a silence may end on a later day."""

    def give(engine: duckdb.DuckDBPyConnection, context: Mapping[str, Any]) -> None:
        spans = {"host": "VARCHAR", "start_us": "BIGINT", "end_us": "BIGINT"}
        duck.give(engine, "recorded", spans, context["recorded"])
        duck.give(engine, "ends", {"host": "VARCHAR", "end_us": "BIGINT"}, context["ends"])

    return _replaced(task, "liveness", schema.HEARD, give)


def _replaced(
    task: Task,
    table: str,
    state: str,
    give: Callable[[duckdb.DuckDBPyConnection, Mapping[str, Any]], None] = lambda _engine, _context: None,
) -> list[TableFile]:
    """Make a table of what was kept of days in a row: those of its days that are other than before. A file without rows
    stands for a day that has none any more."""
    root = Root(task.tables)
    context: Mapping[str, Any] = work.get(root, task, table)
    columns = schema.TABLES[table]
    names = ", ".join(columns.names)
    written: list[TableFile] = []
    with duck.opened(task.memory_mb, task.threads) as engine:
        duck.set_variables(engine, carried=task.carry_days * DAY)
        _read_days(engine, root, "kept", context["kept"], duck.types(schema.STATES[state]))
        _read_days(engine, root, "was_kept", context["was_kept"], duck.types(schema.STATES[state]))
        _read_days(engine, root, "existing", context["existing"], duck.types(columns))
        give(engine, context)
        engine.execute(f"CREATE TABLE made AS {duck.sql(table)}")
        engine.execute(f"CREATE TABLE before AS SELECT {names}, day FROM existing")
        if table == "epochs":
            # Epochs that nothing kept tells of are as they were.
            engine.execute(
                "INSERT INTO made FROM before ANTI JOIN (SELECT src, epoch FROM kept UNION "
                "SELECT src, epoch FROM was_kept) k ON k.src = before.src AND k.epoch = before.epoch"
            )
        changed = engine.execute(
            "SELECT DISTINCT day FROM ((FROM made EXCEPT FROM before) UNION ALL (FROM before EXCEPT FROM made)) "
            "ORDER BY day"
        ).fetchall()
        for (day,) in changed:
            order = ", ".join(columns.names[:3])
            files = duck.write(engine, root, task.run, table, day, f"FROM made WHERE day = '{day}' ORDER BY {order}")
            written += files or [TableFile(table, "", day, 0, 0)]
    return written


def _read_days(
    engine: duckdb.DuckDBPyConnection, root: Root, name: str, files: list[list[str]], columns: Mapping[str, str]
) -> None:
    """Make a table of files, each given with its day."""
    engine.execute(
        f"CREATE TABLE {name} AS SELECT {', '.join(f'NULL::{kind} AS {column}' for column, kind in columns.items())}, "
        "NULL::VARCHAR AS day, NULL::VARCHAR AS kept_day LIMIT 0"
    )
    by_day: dict[str, list[str]] = {}
    for day, path in files:
        by_day.setdefault(day, []).append(path)
    for day, paths in by_day.items():
        duck.read(engine, f"{name}_files", root, paths, columns)
        engine.execute(f"INSERT INTO {name} SELECT *, '{day}', '{day}' FROM {name}_files")
