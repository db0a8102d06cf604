"""Rows -> runs: stretches of one source at one receiver in which the numbers only rise (align.py says what for).

Law: the runs of a day are told by the rows of that day alone, so they may be kept and put together with those of other
days. Nothing is grouped by anything but fixed-length sums: rows are gathered into cells, a minute and `BLOCK` numbers
wide, which show every hole that is as wide as a jump; only cells that cannot be what they seem are looked at row by
row.

A cell cannot be what it seems where numbers that were accepted did not only rise (a daemon forgets a source that it
takes for dead, and begins to count anew), or where copies came from another port than before (a source that begins anew
within two seconds is taken for a copy of itself).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline.align import ENDLESS, SANITY, Run, went_back

#: numbers to a cell, as bits: no wider than a jump, so that none can hide in one
BLOCK: Final = 10
#: microseconds in a minute and in a day
MINUTE: Final = 60_000_000
DAY: Final = 86_400_000_000
#: what a receiver heard of a message at all; the rest was refused
ARRIVED: Final = ("accepted", "reordered", "restart", "duplicate", "stale", "looped", "not_addressed")
#: what was new to it when it came
NEW: Final = ("accepted", "restart", "not_addressed", "looped")
#: cells of a source at a receiver with copies from another port, a day: one that has more uses a new port for each
#: message, so that ports say nothing
MAX_PORTS: Final = 64
#: the sender that does not know its own name
NAMELESS: Final = "?"
#: less than any number, also than that of seq 0
_LEAST: Final = -ENDLESS - 2


class Cell(NamedTuple):
    """The rows of one source at one receiver in one minute, of `BLOCK` numbers: those that were new, and all of them.

    Where no row was new, the fields of new rows are those of all, and ``fresh`` is 0.
    """

    day: str
    host: str
    journal_id: str
    src: str
    epoch: int
    minute: int
    block: int
    from_rec: int
    to_rec: int
    from_ts: int
    to_ts: int
    lo_key: int
    hi_key: int
    first_key: int
    last_key: int
    fresh: int
    copies: int
    lo_port: int
    hi_port: int
    #: looked at row by row
    clear: bool = False
    #: the source began anew before it
    begins: bool = False


class Row(NamedTuple):
    """A row of a cell that has to be looked at."""

    rec_no: int
    ts: int
    seq_key: int
    epoch: int
    peer_port: int
    verdict: str


class Gathered(NamedTuple):
    """What Spark says of a cell and a segment: of all rows, and, beginning with ``new``, of those that were new."""

    day: str
    host: str
    journal_id: str
    src: str
    epoch: int
    minute: int
    block: int
    segment: str | None
    from_rec: int
    from_ts: int
    lo_key: int
    to_rec: int
    to_ts: int
    hi_key: int
    new_from_rec: int | None
    new_from_ts: int | None
    new_lo_key: int | None
    new_to_rec: int | None
    new_to_ts: int | None
    new_hi_key: int | None
    new_first_key: int | None
    new_last_key: int | None
    fresh: int
    dup: int
    rows: int
    lo_port: int
    hi_port: int
    clear: bool
    begins: bool


#: what names a cell
PLACE: Final = ("day", "host", "journal_id", "src", "epoch", "minute", "block")
GATHERED_SQL: Final = (
    "day string, host string, journal_id string, src string, epoch int, minute bigint, block bigint, segment string, "
    "from_rec bigint, from_ts bigint, lo_key bigint, to_rec bigint, to_ts bigint, hi_key bigint, "
    "new_from_rec bigint, new_from_ts bigint, new_lo_key bigint, new_to_rec bigint, new_to_ts bigint, "
    "new_hi_key bigint, new_first_key bigint, new_last_key bigint, fresh bigint, dup bigint, rows bigint, "
    "lo_port int, hi_port int, clear boolean, begins boolean"
)
#: runs, and whether a cell has to be looked at (then it is named, and the rest is null)
RUN_SQL: Final = (
    "src string, suspect boolean, minute bigint, block bigint, day string, host string, journal_id string, epoch int, "
    "from_rec bigint, to_rec bigint, from_ts bigint, to_ts bigint, lo_key bigint, hi_key bigint, first_key bigint, "
    "last_key bigint, loose boolean, masked boolean"
)


def prepared(obs: DataFrame) -> DataFrame:
    """Rows with what all of these tables ask of them: ``us``, the time in microseconds, and ``tracked``, whether they
    are of a message that arrived."""
    return obs.select(
        *("host", "journal_id", "rec_no", "segment", "peer_ip", "peer_port", "verdict", "src", "seq_key", "epoch"),
        *("chan", "form", "len"),
        F.unix_micros("ts").alias("us"),
        (
            F.col("verdict").isin(*ARRIVED)
            & F.col("src").isNotNull()
            & (F.col("src") != NAMELESS)
            & F.col("seq_key").isNotNull()
        ).alias("tracked"),
    )


def day_of(us: Column) -> Column:
    """The day of a time in microseconds, as text."""
    return F.date_format(F.timestamp_micros(us), "yyyy-MM-dd")


def cells(rows: DataFrame) -> DataFrame:
    """What arrived, in the shape of GATHERED_SQL; the rows that are of no message are in cells without a source."""
    tracked = F.col("tracked")
    new = tracked & F.col("verdict").isin(*NEW)

    def of_new(name: str) -> Column:
        return F.when(new, F.col(name))

    return (
        rows.groupBy(
            (F.floor(F.col("us") / DAY)).alias("date"),
            "host",
            "journal_id",
            "segment",
            F.when(tracked, F.col("src")).alias("src"),
            F.when(tracked, F.col("epoch")).alias("epoch"),
            F.floor(F.col("us") / MINUTE).alias("minute"),
            F.when(tracked, F.shiftright("seq_key", BLOCK)).alias("block"),
        )
        .agg(
            F.min(of_new("rec_no")).alias("new_from_rec"),
            F.max(of_new("rec_no")).alias("new_to_rec"),
            F.min(of_new("us")).alias("new_from_ts"),
            F.max(of_new("us")).alias("new_to_ts"),
            F.min(of_new("seq_key")).alias("new_lo_key"),
            F.max(of_new("seq_key")).alias("new_hi_key"),
            F.min_by(of_new("seq_key"), of_new("rec_no")).alias("new_first_key"),
            F.max_by(of_new("seq_key"), of_new("rec_no")).alias("new_last_key"),
            F.min("rec_no").alias("from_rec"),
            F.max("rec_no").alias("to_rec"),
            F.min("us").alias("from_ts"),
            F.max("us").alias("to_ts"),
            F.min("seq_key").alias("lo_key"),
            F.max("seq_key").alias("hi_key"),
            F.count_if(new).alias("fresh"),
            F.count_if(F.col("verdict") == "duplicate").alias("dup"),
            F.count("*").alias("rows"),
            F.min("peer_port").alias("lo_port"),
            F.max("peer_port").alias("hi_port"),
        )
        .select(
            day_of(F.col("date") * DAY).alias("day"),
            *Gathered._fields[1:-2],
            F.lit(False).alias("clear"),
            F.lit(False).alias("begins"),
        )
    )


def merged(gathered: Iterable[Gathered]) -> list[Cell]:
    """Cells, whatever segment their rows came from."""
    found: list[Cell] = []
    for _, each in groupby(sorted(gathered, key=_by_place), key=_by_place):
        some = list(each)
        if some[0].clear:
            found += [_cell([one]) for one in some]
        else:
            found.append(_cell(some))
    return found


def _by_place(cell: Gathered) -> tuple[Any, ...]:
    return (*cell[:7], cell.clear)


def _cell(some: Sequence[Gathered]) -> Cell:
    """The parts of a cell put together."""
    new = [one for one in some if one.fresh] or some
    bounds = [_bounds(one) for one in new]
    first, last = min(bounds), max(bounds, key=lambda each: each[1])
    fresh = sum(one.fresh for one in some)
    return Cell(
        *some[0][:7],
        first[0],
        last[1],
        min(each[2] for each in bounds),
        max(each[3] for each in bounds),
        min(each[4] for each in bounds),
        max(each[5] for each in bounds),
        first[6],
        last[7],
        fresh,
        sum(one.rows for one in some) - fresh,
        min(one.lo_port for one in some),
        max(one.hi_port for one in some),
        some[0].clear,
        some[0].begins,
    )


def _bounds(one: Gathered) -> tuple[int, int, int, int, int, int, int, int]:
    """From and to: record, time, number; the first and the last number. Of rows that were new, or of all."""
    new = (one.new_from_rec, one.new_to_rec, one.new_from_ts, one.new_to_ts, one.new_lo_key, one.new_hi_key)
    if one.fresh:
        return (*new, one.new_first_key, one.new_last_key)  # type: ignore[return-value] # Spark says them all, or none
    return one.from_rec, one.to_rec, one.from_ts, one.to_ts, one.lo_key, one.hi_key, one.lo_key, one.hi_key


def _gathered(cell: Cell) -> Gathered:
    """A cell that was looked at, as if Spark had said it."""
    spans = (cell.from_rec, cell.from_ts, cell.lo_key, cell.to_rec, cell.to_ts, cell.hi_key)
    new = (*spans, cell.first_key, cell.last_key) if cell.fresh else (None,) * 8
    ports = (cell.lo_port, cell.hi_port)
    counts = (cell.fresh, 0, cell.fresh + cell.copies)
    return Gathered._make((*cell[:7], None, *spans, *new, *counts, *ports, cell.clear, cell.begins))


def collapse(cells: Iterable[Cell]) -> tuple[list[Run], list[Cell]]:
    """The runs of one source at one receiver on one day, and the cells that have to be looked at first."""
    found: list[Run] = []
    suspects: list[Cell] = []
    for _, each in groupby(sorted(cells, key=_by_journal), key=lambda cell: cell.journal_id):
        some = list(each)
        fresh = [cell for cell in some if cell.fresh]
        ordered = fresh or some
        found += _runs(ordered, loose=not fresh, suspects=suspects)
        _ports(some, suspects)
    return found, list(dict.fromkeys(suspects))


def _by_journal(cell: Cell) -> tuple[str, int, int]:
    return cell.journal_id, cell.from_rec, cell.to_rec


def _runs(cells: Sequence[Cell], *, loose: bool, suspects: list[Cell]) -> Iterator[Run]:
    """Cells of one journal, in order, put together as far as numbers rise."""
    run: Run | None = None
    last: Cell | None = None
    for cell in cells:
        own = loose or cell.epoch == 0
        new = Run(*cell[:3], cell.epoch, *cell[7:15], own, cell.begins)
        if not own and not cell.clear and not _rises(cell):
            suspects.append(cell)
        if run is None or last is None or run.epoch != cell.epoch or cell.begins:
            joined = False
        else:
            if not own and cell.from_rec < run.to_rec and not (cell.clear and last.clear):
                suspects += [each for each in (last, cell) if not each.clear]
            joined = not went_back(run, new) and new.lo_key - run.hi_key < SANITY
        if joined and run is not None:
            run = run._replace(
                to_rec=max(run.to_rec, new.to_rec),
                to_ts=max(run.to_ts, new.to_ts),
                lo_key=min(run.lo_key, new.lo_key),
                hi_key=max(run.hi_key, new.hi_key),
                last_key=max(run.last_key, new.last_key) if own else new.last_key,
            )
        else:
            if run is not None:
                yield run
            run = new
        last = cell
    if run is not None:
        yield run


def _rises(cell: Cell) -> bool:
    """Whether the new rows of a cell can have numbers that only rise."""
    return (
        cell.first_key == cell.lo_key and cell.last_key == cell.hi_key and cell.fresh <= cell.hi_key - cell.lo_key + 1
    )


def _ports(cells: Sequence[Cell], suspects: list[Cell]) -> None:
    """Cells with copies that came from another port than what came before."""
    found: list[Cell] = []
    last: Cell | None = None
    for cell in cells:
        if cell.copies and cell.epoch and not cell.clear:
            if cell.lo_port != cell.hi_port:
                found.append(cell)
            elif last is not None and last.epoch == cell.epoch and last.hi_port != cell.lo_port:
                found += [each for each in (last, cell) if not each.clear]
        last = cell
    if len(found) <= MAX_PORTS:
        suspects += found


def look_at(rows: Sequence[Row], cells: Sequence[Cell]) -> list[Cell]:
    """Cells, by the rows that they hold, all of one journal and source: in the same places, but divided where the
    source has begun anew."""
    place = {(cell.epoch, cell.minute, cell.block): cell for cell in cells}
    by_port = len(cells) <= 2 * MAX_PORTS
    ordered = sorted(rows)
    until = {row.peer_port: row.rec_no for row in ordered}
    since = {row.peer_port: row.rec_no for row in reversed(ordered)}
    found: list[Cell] = []
    open_cells: dict[tuple[int, int, int], int] = {}
    epoch, port, last_key, swallowed = -1, -1, _LEAST, False
    for row in ordered:
        begins = False
        fresh = row.verdict in NEW
        if row.epoch != epoch:
            epoch, last_key, swallowed = row.epoch, _LEAST, False
        elif fresh and row.seq_key <= last_key:
            # late, and let through as such; or the source had been forgotten
            fresh = begins = row.verdict != "not_addressed" or last_key - row.seq_key >= SANITY
        elif not fresh and swallowed:
            fresh = row.seq_key > last_key
        elif not fresh and by_port and until.get(port, ENDLESS) < row.rec_no == since[row.peer_port]:
            fresh = begins = swallowed = row.seq_key < last_key
        if begins:
            open_cells.clear()
        if fresh:
            port, last_key = row.peer_port, row.seq_key
        where = row.epoch, row.ts // MINUTE, row.seq_key >> BLOCK
        if where not in open_cells:
            open_cells[where] = len(found)
            found.append(_start(place[where], row, begins=begins, fresh=fresh))
        else:
            cell = found[open_cells[where]]
            # What comes behind it is compared with where its last row came from.
            found[open_cells[where]] = (_extend(cell, row) if fresh else cell)._replace(hi_port=row.peer_port)
    return found


def _start(origin: Cell, row: Row, *, begins: bool, fresh: bool) -> Cell:
    key, port = row.seq_key, row.peer_port
    spans = (row.rec_no, row.rec_no, row.ts, row.ts, key, key, key, key)
    return Cell(*origin[:7], *spans, int(fresh), int(not fresh), port, port, clear=True, begins=begins)


def _extend(cell: Cell, row: Row) -> Cell:
    if not cell.fresh:
        return _start(cell, row, begins=cell.begins, fresh=True)
    return cell._replace(
        to_rec=row.rec_no,
        to_ts=max(cell.to_ts, row.ts),
        lo_key=min(cell.lo_key, row.seq_key),
        hi_key=max(cell.hi_key, row.seq_key),
        last_key=row.seq_key,
        fresh=cell.fresh + 1,
    )


def by_source(frame: DataFrame | pa.Table, function: Callable[[pa.Table], pa.Table], sql: str) -> DataFrame | pa.Table:
    """What a function says of the rows of each source: by Spark for a frame, here and now for a table."""
    if isinstance(frame, DataFrame):
        return frame.groupBy("src").applyInArrow(function, sql)
    ordered = frame.sort_by("src")
    names = ordered.column("src").to_pylist()
    parts = [pa.schema(arrow_columns(sql)).empty_table()]
    start = 0
    for _, each in groupby(names):
        length = len(list(each))
        parts.append(function(ordered.slice(start, length)))
        start += length
    return pa.concat_tables(parts)


def runs(
    spark: SparkSession,
    rows: DataFrame,
    gathered: DataFrame | pa.Table,
    keep: Callable[[DataFrame], DataFrame],
) -> DataFrame | pa.Table:
    """The runs in cells of sources, in the shape of RUN_SQL; ``rows`` are `prepared`, and looked at only where cells
    demand it. ``keep`` is for frames that are used twice."""
    found = by_source(gathered, _collapse_table, RUN_SQL)
    if isinstance(found, DataFrame):
        found = keep(found)
        suspects = found.filter("suspect").select(*PLACE)
        if suspects.isEmpty():
            return found.filter("not suspect")
        rest = gathered.join(F.broadcast(suspects), [*PLACE], "left_anti").unionByName(_clear(rows, suspects))
        return by_source(rest, _collapse_table, RUN_SQL).filter("not suspect")
    wanted = found.column("suspect").to_pylist()
    if not any(wanted):
        return found
    places = found.filter(pa.array(wanted)).select(PLACE)
    clear = _clear(rows, spark.createDataFrame(places)).toArrow()
    taken = set(rows_of(places, PLACE))
    others = pa.array([place not in taken for place in rows_of(gathered, PLACE)], pa.bool_())
    again = pa.concat_tables([gathered.filter(others), clear.cast(gathered.schema)])
    return by_source(again, _collapse_table, RUN_SQL)


def _clear(rows: DataFrame, suspects: DataFrame) -> DataFrame:
    """Cells that were looked at row by row."""
    place: list[Column | str] = [
        day_of(F.col("us")).alias("day"),
        *("host", "journal_id", "src", "epoch"),
        F.floor(F.col("us") / MINUTE).alias("minute"),
        F.shiftright("seq_key", BLOCK).alias("block"),
    ]
    demanded = rows.filter("tracked").select(*place, "rec_no", "us", "seq_key", "peer_port", "verdict")
    demanded = demanded.join(F.broadcast(suspects), [*PLACE])
    return demanded.groupBy("day", "host", "journal_id", "src").applyInArrow(_look_at_table, GATHERED_SQL)


def rows_of(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of an Arrow table as tuples of these columns."""
    return zip(*[table.column(name).to_pylist() for name in names], strict=True)


def table_of(rows: Sequence[Sequence[Any]], columns: Sequence[tuple[str, pa.DataType]]) -> pa.Table:
    """An Arrow table of tuples."""
    schema = pa.schema(columns)
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    return pa.Table.from_arrays(
        [pa.array(each, kind) for each, (_, kind) in zip(values, columns, strict=True)], schema=schema
    )


def frame_of(spark: SparkSession, rows: Iterable[Sequence[Any]], sql: str) -> DataFrame:
    """A frame of tuples."""
    return spark.createDataFrame(table_of(list(rows), arrow_columns(sql)))


def _collapse_table(table: pa.Table) -> pa.Table:
    """What `collapse` says of all receivers of a source; runs in Spark's Python."""
    cells = sorted(merged(Gathered(*row) for row in rows_of(table, Gathered._fields)))
    rows: list[tuple[Any, ...]] = []
    for _, each in groupby(cells, key=lambda cell: cell[:2]):
        some = list(each)
        src = some[0].src
        found, suspects = collapse(some)
        rows += [(src, False, None, None, *run[:-2]) for run in found]
        rows += [(src, True, cell.minute, cell.block, *cell[:3], cell.epoch, *[None] * 10) for cell in suspects]
    return table_of(rows, arrow_columns(RUN_SQL))


def _look_at_table(table: pa.Table) -> pa.Table:
    """What `look_at` says of the rows of a receiver's journal; runs in Spark's Python."""
    rows = [Row(*row) for row in rows_of(table, ("rec_no", "us", "seq_key", "epoch", "peer_port", "verdict"))]
    cells = [Cell(*row, *[0] * 12) for row in dict.fromkeys(rows_of(table, PLACE))]
    return table_of([_gathered(cell) for cell in look_at(rows, cells)], arrow_columns(GATHERED_SQL))


def arrow_columns(sql: str) -> list[tuple[str, pa.DataType]]:
    """Columns written in SQL, for Arrow."""
    kinds = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_()}
    return [(name, kinds[kind]) for name, kind in (one.split() for one in sql.split(","))]
