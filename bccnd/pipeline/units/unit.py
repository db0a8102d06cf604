"""Makes the tables of a day for a share of the sources: reads its slice of the journal, and runs the tables' SQL."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import duckdb
import pyarrow as pa

from bccnd.core.tracking.tracker_limits import HORIZON, SANITY
from bccnd.journal.file_names import DAY, start_of
from bccnd.pipeline import schema
from bccnd.pipeline.epochs import Carried, Epoch, Reported, Sent, SeqBlock, Spans, find_epochs
from bccnd.pipeline.lake.place import Root
from bccnd.pipeline.receivers import MARGIN, joined
from bccnd.pipeline.restarts import PlacedStep, Restart, Step, find_restarts
from bccnd.pipeline.schema import TableFile
from bccnd.pipeline.units import engine as duck
from bccnd.pipeline.units import work
from bccnd.pipeline.units.engine import Query
from bccnd.pipeline.units.work import Task

_COLUMNS: Final = {
    "host": "VARCHAR",
    "journal_id": "VARCHAR",
    "rec_no": "BIGINT",
    "ts": "TIMESTAMPTZ",
    "segment": "VARCHAR",
    "peer_ip": "VARCHAR",
    "peer_port": "INTEGER",
    "verdict": "VARCHAR",
    "algo": "VARCHAR",
    "src": "VARCHAR",
    "seq_key": "BIGINT",
    "chan": "VARCHAR",
    "len": "INTEGER",
}
#: tables whose rows are of one share only, and the SQL of each; those that take longest first
_OWN: Final = {
    schema.HEARD: "state_heard",
    "link_loss": "link_loss",
    "messages": "table_messages",
    "delivery": "delivery",
    "missed": "missed",
    "channel_traffic": "channel_traffic",
    schema.EPOCHS: "state_epochs",
}
REFUSED: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("host", "verdict", "peer_ip", "claimed_src", "algo")),
        *((name, pa.int64()) for name in ("minute", "n", "first_us", "last_us")),
    ]
)
#: tables that combine.py makes of the parts of all shares
SHARED: Final = {
    "receiver_sets": schema.TABLES["receiver_sets"],
    "channel_loss": schema.TABLES["channel_loss"],
    "refused": REFUSED,
}
_SHARE: Final = "('0x' || md5(coalesce(src, host))[1:2])::UTINYINT"


def run_unit(task: Task) -> list[TableFile]:
    """Make the tables of days, one after the other: what is known of sources at the end of one is carried on."""
    root = Root(task.tables)
    written: list[TableFile] = []
    made: list[TableFile] = []
    for day in task.days:
        before: list[str] | None = work.get(root, task, f"carried-{day}")
        if before is None:
            before = [f"{file.table}/{file.path}" for file in made if file.table == schema.EPOCHS]
        made = _Day(task, root, day, before).run()
        written += made
    return written


class _Day:
    """A day of a unit. ``carried`` are the files with the epochs of the day before, below the tables."""

    def __init__(self, task: Task, root: Root, day: str, carried: Sequence[str]) -> None:
        self._task, self._root, self._day, self._carried = task, root, day, carried
        self._receivers: dict[str, Any] = work.get(root, task, f"day-{day}")
        self._sent: list[str] = work.get(root, task, f"sent-{day}")

    def run(self) -> list[TableFile]:
        task = self._task
        with duck.opened(task.memory_mb, task.threads) as engine:
            self._load(engine)
            for name in ("received", "heard", "buckets", "steps"):
                engine.execute(duck.sql(name))
            restarts = _find_restarts(engine)
            engine.execute(duck.sql("placed"))
            engine.execute(duck.sql("numbers"))
            recorded = joined((low, high + 1) for _, low, high in self._receivers["listened"])
            _find_epochs(engine, restarts, list(recorded))
            engine.execute(duck.sql("messages"))
            return self._write(engine)

    def _load(self, engine: duckdb.DuckDBPyConnection) -> None:
        task, start = self._task, start_of(self._day)
        duck.set_variables(
            engine,
            day_from=start,
            day_to=start + DAY,
            margin_from=start - MARGIN,
            margin_to=start + DAY + MARGIN,
            carried_from=start + DAY - task.carry_days * DAY,
            sanity=SANITY,
            horizon=round(HORIZON * 1e6),
        )
        spans = {"host": "VARCHAR", "low": "BIGINT", "high": "BIGINT"}
        duck.give(engine, "listened", spans, self._receivers["listened"])
        numbers = dict.fromkeys(("from_rec", "to_rec", "shift", "ahead"), "BIGINT")
        hearers = {"host": "VARCHAR", "journal_id": "VARCHAR", **numbers}
        duck.give(engine, "given_hearers", hearers, self._receivers["given_hearers"])
        segments = {"host": "VARCHAR", "segment": "VARCHAR"}
        duck.give(engine, "segments_of_hosts", segments, self._receivers["segments_of_hosts"])
        duck.define_sets(engine, [host for (host,) in engine.execute(duck.sql("hosts")).fetchall()])
        engine.execute(duck.sql("receivers"))
        self._read_obs(engine)
        share = f"{_SHARE} BETWEEN {task.low} AND {task.high}" if not task.whole else "true"
        duck.read(engine, "all_carried", self._root, self._carried, duck.types(schema.STATES[schema.EPOCHS]))
        share_of_src = share.replace("coalesce(src, host)", "src")
        engine.execute(f"CREATE TABLE carried AS SELECT * FROM all_carried WHERE latest AND {share_of_src}")
        duck.read(engine, "all_sent", self._root, self._sent, duck.types(schema.STATES[schema.SENT]))
        engine.execute(f"CREATE TABLE sent AS SELECT * FROM all_sent WHERE {share_of_src}")

    def _read_obs(self, engine: duckdb.DuckDBPyConnection) -> None:
        """The view ``obs``: rows of the unit's shares. Files whose rows are sorted by share are read in part only."""
        task, journal = self._task, Root(self._task.journal)
        files = self._receivers["files"]
        shared = [path for path, has_share in files if has_share]
        other = [path for path, has_share in files if not has_share]
        duck.read(engine, "obs_sorted", journal, shared, _COLUMNS if task.whole else {**_COLUMNS, "share": "UTINYINT"})
        duck.read(engine, "obs_other", journal, other, _COLUMNS, foreign=True)
        names = ", ".join(_COLUMNS)
        if task.whole:
            engine.execute(f"CREATE VIEW obs AS SELECT {names} FROM obs_sorted UNION ALL SELECT {names} FROM obs_other")
        else:
            engine.execute(
                f"CREATE VIEW obs AS SELECT {names} FROM obs_sorted WHERE share BETWEEN {task.low} AND {task.high} "
                f"UNION ALL SELECT {names} FROM obs_other WHERE {_SHARE} BETWEEN {task.low} AND {task.high}"
            )

    def _write(self, engine: duckdb.DuckDBPyConnection) -> list[TableFile]:
        engine.execute(duck.sql("nameless"))
        engine.execute(duck.sql("refused"))
        folder = self._task.folder
        queries = [Query(table, duck.sql(name)) for table, name in _OWN.items()]
        shared = {name: duck.sql(name) for name in ("receiver_sets", "channel_loss")} | {
            "refused": "FROM refused ORDER BY ALL"
        }
        queries += [Query(f"{folder}/{table}", shared[table], columns) for table, columns in SHARED.items()]
        return duck.write_all(engine, self._root, self._task.run, self._day, queries, max(2, self._task.threads))


def _find_restarts(engine: duckdb.DuckDBPyConnection) -> list[Restart]:
    """Make the tables ``restarts`` and ``placed_steps``, and return the restarts."""
    steps = [Step(*row) for row in engine.execute("FROM steps").fetchall()]
    restarts, placed = find_restarts(steps)
    _give_restarts(engine, restarts, placed)
    if not restarts:
        return []
    engine.execute(duck.sql("veto"))
    vetoed = set(engine.execute("FROM vetoed").fetchall())
    if vetoed:
        untrue = {(one.src, one.hearer, one.rec) for one in placed if (one.src, one.number) in vetoed}
        restarts, placed = find_restarts(step for step in steps if (step.src, step.hearer, step.rec) not in untrue)
        _give_restarts(engine, restarts, placed)
    return restarts


def _give_restarts(
    engine: duckdb.DuckDBPyConnection, restarts: Sequence[Restart], placed: Sequence[PlacedStep]
) -> None:
    numbers = dict.fromkeys(("after", "before", "old_key", "first_key"), "BIGINT")
    duck.give(engine, "restarts", {"src": "INTEGER", "number": "INTEGER", **numbers, "noticed": "BOOLEAN"}, restarts)
    columns = {"src": "INTEGER", "hearer": "INTEGER", "rec": "BIGINT", "number": "INTEGER", "before": "BIGINT"}
    duck.give(engine, "placed_steps", columns, placed)


def _find_epochs(engine: duckdb.DuckDBPyConnection, restarts: Sequence[Restart], spans: Spans) -> None:
    """Make the tables ``epochs_found`` and ``reported``."""
    by_source: dict[int, list[Restart]] = {}
    for restart in restarts:
        by_source.setdefault(restart.src, []).append(restart)
    sent: dict[int, list[Sent]] = {}
    for src, *report in engine.execute(
        "SELECT s.id, first_key, last_key, min(us - shift), min(us - shift - ahead) FROM sent "
        "JOIN sources s USING (src) JOIN hearers h ON sent.host = h.host AND sent.journal_id = h.journal_id "
        "AND rec BETWEEN from_rec AND to_rec WHERE us - shift >= getvariable('day_from') "
        "AND us - shift < getvariable('day_to') GROUP BY ALL ORDER BY ALL"
    ).fetchall():
        sent.setdefault(src, []).append(Sent(*report))
    carried = {
        src: Carried(*rest)
        for src, *rest in engine.execute(
            "SELECT s.id, epoch, cause, last_us, last_key, pace, pace_us FROM carried JOIN sources s USING (src)"
        ).fetchall()
    }
    epochs: list[tuple[int, *tuple[Any, ...]]] = []
    reported: list[tuple[int, *tuple[Any, ...]]] = []
    blocks = engine.execute(
        "SELECT src, era, low, high, start_us, end_us FROM blocks ORDER BY src, era, low"
    ).fetchall()
    for src, rows in groupby(blocks, key=itemgetter(0)):
        of_source = [SeqBlock(*row[1:]) for row in rows]
        found, ends = find_epochs(of_source, by_source.get(src, ()), sent.get(src, ()), carried.get(src), spans)
        epochs += ((src, *epoch) for epoch in found)
        reported += ((src, *report) for report in ends)
    kinds = dict(zip(Epoch._fields, ("INTEGER", "BIGINT", "BIGINT", "VARCHAR", "BIGINT", "BIGINT"), strict=True))
    duck.give(engine, "epochs_found", {"src": "INTEGER", **kinds}, epochs)
    duck.give(engine, "reported", {"src": "INTEGER", **dict.fromkeys(Reported._fields, "BIGINT")}, reported)
