"""From rows to tables of delivery and loss: what is done in which order, and what is kept for later.

Law: the tables of a day are the same whether it is computed alone or with others, and whatever the order in which files
came: they follow from its rows, those of MARGIN (inputs.py) around it, and what is kept of other days (`Result.state`).

Rows are read three times, with few columns: for the runs of sources (runs.py), for a part of the messages to compare
clocks by, and for the messages. All else follows from these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bccnd.pipeline import align, clocks, listening, masks, runs, schema, state_of_days
from bccnd.pipeline.clocks import Clock
from bccnd.pipeline.tables.delivery import delivery
from bccnd.pipeline.tables.epochs import epochs as epochs_table
from bccnd.pipeline.tables.epochs import of_days
from bccnd.pipeline.tables.host_dim import bits, host_dim
from bccnd.pipeline.tables.link_loss import absent, link_loss
from bccnd.pipeline.tables.liveness import joined
from bccnd.pipeline.tables.messages import SMALL, arrivals, messages, placed, with_gaps
from bccnd.pipeline.tables.missed import missed
from bccnd.pipeline.tables.skew import parts_of, references, skew

#: columns of skew that are a `clocks.Apart`
_APART: Final = ("day", "host", "ref_host", "p05_us", "p50_us", "p95_us")
#: runs and their sources
_RUN_SQL: Final = (
    "src string, day string, host string, journal_id string, epoch int, from_rec bigint, to_rec bigint, "
    "from_ts bigint, to_ts bigint, lo_key bigint, hi_key bigint, first_key bigint, last_key bigint, loose boolean, "
    "masked boolean, offset bigint, spread bigint"
)
#: cells, or runs kept, up to which they are worked on here instead of by Spark: 100 MB and a few seconds
LOCAL: Final = 200_000
#: what alignment says, kind by kind: `cause` (src, epoch, cause), `piece` (a `align.Piece`), `mark` (src, day, mark)
_ALIGNED_SQL: Final = (
    "kind string, src string, epoch int, cause string, day string, mark bigint, host string, journal_id string, "
    "from_rec bigint, to_rec bigint, from_ts bigint, to_ts bigint, lo_key bigint, hi_key bigint"
)


@dataclass(frozen=True)
class Result:
    """All tables of the days that were computed, but `epochs`, which has those of all days known.

    ``tables`` have their columns of schema.py and ``day`` (a date). ``state`` is what is to be kept of these days, by
    ``day`` (text). ``words`` are the columns of a mask. ``traffic`` has one row for each message: day, win, src, chan,
    form, len. ``renumbered`` are other days whose rows go to other epochs now, or follow other numbers: they have to be
    computed again. ``corrections`` are those of wrong clocks (clocks.py), on these days and all others known.
    `close` once all of it was used.
    """

    tables: dict[str, DataFrame]
    state: DataFrame
    words: int
    traffic: DataFrame
    renumbered: list[str]
    corrections: Mapping[clocks.Key, int]
    kept: list[DataFrame] = field(default_factory=list)

    def close(self) -> None:
        """Give back what Spark holds."""
        for frame in self.kept:
            frame.unpersist()


def compute(
    spark: SparkSession,
    obs: DataFrame,
    sessions: DataFrame,
    *,
    days: Sequence[str] | None = None,
    state: DataFrame | None = None,
) -> Result:
    """The tables of ``days``, by default of all that there are.

    ``obs`` has the rows of these days and of MARGIN (inputs.py) around them, ``sessions`` all sessions, ``state`` what
    was kept of all other days.
    """
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    rows = runs.prepared(obs)
    everywhere = _small(keep(runs.cells(rows)))
    facts = _facts(everywhere)
    wanted = sorted(set(days)) if days is not None else sorted(facts.rows)
    least = min((parts_of(facts.total(day)) for day in wanted), default=1)
    apart = keep(skew(rows, _references(spark, facts, wanted), least))
    computed = wanted
    others = clocks.kept(state, computed)
    offsets = clocks.offsets(clocks.Apart(*row) for row in apart.select(*_APART).collect())
    corrections, guessed = clocks.corrections(offsets, facts.rows, wanted, others)
    if corrections:
        rows = runs.prepared(clocks.put_right(spark, obs, corrections))
        everywhere = _small(keep(runs.cells(rows)))
        facts = _facts(everywhere)
        wanted = wanted if days is not None else sorted(facts.rows)
    found_clocks = clocks.left(offsets, corrections, others)
    cells = _of_days(everywhere, wanted)
    found_sessions = listening.sessions_of(clocks.sessions_put_right(spark, sessions, corrections))
    dims = {day: bits([*facts.rows.get(day, ()), *listening.hosts_on(found_sessions, day)]) for day in wanted}
    words = max([masks.words_for(len(each)) for each in dims.values()], default=1)

    found = clocks.with_clocks(spark, runs.runs(spark, rows, cells, keep), found_clocks, _RUN_SQL)
    found = keep(found) if isinstance(found, DataFrame) else found
    aligned = _align(spark, found, state, found_sessions)
    aligned = keep(aligned) if isinstance(aligned, DataFrame) else aligned
    numbers, pieces, count = _numbered(spark, aligned)

    hosts = sorted({host for each in [*facts.rows.values(), *dims.values()] for host in each})
    frame_words = masks.words_for(len(hosts))
    placed_rows = placed(rows, numbers.single, pieces, broadcast=count <= SMALL)
    seen = arrivals(placed_rows, _host_days(spark, hosts, facts, found_clocks, wanted), frame_words)
    seen = with_gaps(seen, state_of_days.earlier(state, numbers.all, wanted))
    if days is not None:
        seen = seen.filter(F.col("day").isin(*wanted))
    seen = _moved(seen, hosts, dims, frame_words, words)
    audience = _audience(spark, everywhere, facts, dims, words)
    heard = listening.intervals(
        found_sessions, facts.journals, dims, {key: clock.offset for key, clock in found_clocks.items()}
    )
    known = keep(_known(seen, numbers.all, audience, listening.frame(spark, heard, words), words))

    bits_of_days = host_dim(spark, dims)
    missing = keep(absent(known, bits_of_days, words))
    copies = _copies(spark, cells, rows, numbers, pieces, wanted, broadcast=count <= SMALL)
    epochs = keep(state_of_days.all_days(of_days(known, bits_of_days, words), state))
    marks = _of_kind(spark, aligned, "mark", ("day", "src", "mark"))
    made = {
        "host_dim": bits_of_days,
        "epochs": epochs_table(epochs, numbers.all),
        "messages": messages(known, words),
        "link_loss": link_loss(known, missing, copies, bits_of_days, words),
        "delivery": delivery(known, words),
        "missed": missed(known, missing),
        "skew": apart if days is None else apart.filter(F.col("day").isin(*wanted)),
    }
    return Result(
        {name: schema.conform(name, frame, words) for name, frame in made.items()},
        state_of_days.kept(
            _frame(spark, found),
            epochs,
            marks.filter(F.col("day").isin(*wanted)),
            clocks.to_keep(spark, corrections, guessed, computed),
        ),
        words,
        _traffic(known, rows, wanted),
        sorted({*state_of_days.renumbered(marks, state, wanted), *state_of_days.preceded(epochs, state)}),
        corrections,
        kept,
    )


class _Facts(NamedTuple):
    """What is known of the receivers, day by day."""

    #: day -> the hosts with rows
    rows: dict[str, set[str]]
    #: (day, host, journal) -> first and last row
    journals: dict[tuple[str, str, str], tuple[int, int]]
    #: (day, host) -> rows that were new
    new: dict[tuple[str, str], int]
    #: (day, host) -> segments
    segments: dict[tuple[str, str], set[str]]
    #: (day, hosts, segments) of which there is a source that they all heard there
    reach: list[tuple[str, tuple[str, ...], tuple[str, ...]]]

    def total(self, day: str) -> int:
        """The rows of a day that were new."""
        return sum(self.new[day, host] for host in self.rows.get(day, ()))


def _small(cells: DataFrame) -> DataFrame | pa.Table:
    """A frame as a table here, if it is small: Spark takes longer to plan than Python to work then."""
    return cells.toArrow() if cells.count() <= LOCAL else cells


def _frame(spark: SparkSession, found: DataFrame | pa.Table) -> DataFrame:
    return found if isinstance(found, DataFrame) else spark.createDataFrame(found)


def _of_days(cells: DataFrame | pa.Table, days: Sequence[str]) -> DataFrame | pa.Table:
    """The cells of sources on these days."""
    if isinstance(cells, DataFrame):
        return cells.filter(F.col("day").isin(*days) & F.col("src").isNotNull())
    chosen = [day in days and src is not None for day, src in runs.rows_of(cells, ("day", "src"))]
    return cells.filter(pa.array(chosen, pa.bool_()))


def _of_kind(spark: SparkSession, aligned: DataFrame | pa.Table, kind: str, names: Sequence[str]) -> DataFrame:
    """What alignment says, of one kind."""
    if isinstance(aligned, DataFrame):
        return aligned.filter(F.col("kind") == kind).select(*names)
    chosen = pa.array([each == kind for each in aligned.column("kind").to_pylist()], pa.bool_())
    return spark.createDataFrame(aligned.filter(chosen).select(list(names)))


def _facts(cells: DataFrame | pa.Table) -> _Facts:
    facts = _Facts({}, {}, {}, {}, [])
    by_journal = ("day", "host", "journal_id", "segment", "from_ts", "to_ts", "fresh")
    if isinstance(cells, DataFrame):
        sums = cells.groupBy(*by_journal[:4]).agg(F.min("from_ts"), F.max("to_ts"), F.sum("fresh")).collect()
        rows: list[tuple[Any, ...]] = [tuple(row) for row in sums]
        reach = _reach(cells).select("day", "hosts", "segments").distinct().collect()
        facts.reach.extend((day, tuple(hosts), tuple(segments)) for day, hosts, segments in reach)
    else:
        rows = list(runs.rows_of(cells, by_journal))
        facts.reach.extend({(day, *found) for (day, _), found in _reach_here(cells).items()})
    for day, host, journal, segment, first, last, new in rows:
        hosts = facts.rows.setdefault(day, set())
        hosts.add(host)
        before = facts.journals.get((day, host, journal), (first, last))
        facts.journals[day, host, journal] = min(before[0], first), max(before[1], last)
        facts.new[day, host] = facts.new.get((day, host), 0) + new
        facts.segments.setdefault((day, host), set()).add(segment or "")
    return facts


def _reach(cells: DataFrame) -> DataFrame:
    """For each day and source the hosts that heard it, and the segments on which they did."""
    return (
        cells.filter("src is not null")
        .groupBy("day", "src")
        .agg(
            F.sort_array(F.collect_set("host")).alias("hosts"),
            F.sort_array(F.collect_set(F.coalesce("segment", F.lit("")))).alias("segments"),
        )
    )


def _reach_here(cells: pa.Table) -> dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]]:
    """What `_reach` says, by (day, src)."""
    found: dict[tuple[str, str], tuple[set[str], set[str]]] = {}
    for day, src, host, segment in runs.rows_of(cells, ("day", "src", "host", "segment")):
        if src is not None:
            hosts, segments = found.setdefault((day, src), (set(), set()))
            hosts.add(host)
            segments.add(segment or "")
    return {key: (tuple(sorted(hosts)), tuple(sorted(segments))) for key, (hosts, segments) in found.items()}


def _date(day: str) -> int:
    return listening.start_of(day) // runs.DAY


def _references(spark: SparkSession, facts: _Facts, days: Sequence[str]) -> DataFrame:
    """Which clock each host is compared with, and of how many parts of a day's messages one is taken for that."""
    rows = []
    for day in days:
        new = {host: facts.new[day, host] for host in facts.rows.get(day, ())}
        parts = parts_of(facts.total(day))
        found = references(new, [hosts for its_day, hosts, _ in facts.reach if its_day == day])
        rows += [(_date(day), host, reference, parts) for host, reference in found.items()]
    return runs.frame_of(spark, rows, "date bigint, host string, ref_host string, parts int")


def _align(
    spark: SparkSession,
    found: DataFrame | pa.Table,
    state: DataFrame | None,
    sessions: Sequence[listening.Session],
) -> DataFrame | pa.Table:
    """What alignment says of all sources, of all days known."""
    if state is not None:
        kept = state.filter("kind = 'run'").select("src", *align.Run._fields)
        if isinstance(found, DataFrame) or kept.count() > LOCAL:
            found = _frame(spark, found).unionByName(kept)
        else:
            found = pa.concat_tables([found, kept.toArrow().cast(found.schema)])
    ends = ("day", "host", "journal_id", "from_ts", "to_ts")
    if isinstance(found, DataFrame):
        spans: Iterable[Any] = found.groupBy(*ends[:3]).agg(F.min("from_ts"), F.max("to_ts")).drop("day").collect()
    else:
        of_journals = found.select(ends).group_by(list(ends[:3])).aggregate([("from_ts", "min"), ("to_ts", "max")])
        spans = runs.rows_of(of_journals, ("host", "journal_id", "from_ts_min", "to_ts_max"))
    recorded = listening.recorded(sessions, (tuple(span) for span in spans))

    def one(table: pa.Table) -> pa.Table:
        return _align_table(table, recorded)

    return runs.by_source(found, one, _ALIGNED_SQL)


def _align_table(table: pa.Table, recorded: Mapping[str, Sequence[tuple[int, int]]]) -> pa.Table:
    """What `align.align` says of a source; runs in Spark's Python."""
    src = table.column("src")[0].as_py()
    hosts = set(table.column("host").to_pylist())
    anywhere = joined([span for host in hosts for span in recorded.get(host, ())])
    alignment = align.align([align.Run(*row) for row in runs.rows_of(table, align.Run._fields)], anywhere)
    none = (None,) * 8
    rows: list[tuple[Any, ...]] = [
        ("cause", src, number, cause, None, None, *none) for number, cause in enumerate(alignment.causes, 1)
    ]
    rows += [("piece", src, piece.epoch, None, None, None, *piece[:-1]) for piece in alignment.pieces]
    rows += [("mark", src, None, None, day, mark, *none) for day, mark in alignment.marks.items()]
    return runs.table_of(rows, runs.arrow_columns(_ALIGNED_SQL))


class _Numbers(NamedTuple):
    """The epochs with a number for each (id, src, epoch, cause), and of these the sources that have but one."""

    all: DataFrame
    single: DataFrame


def _numbered(spark: SparkSession, aligned: DataFrame | pa.Table) -> tuple[_Numbers, DataFrame | None, int]:
    """Epochs with numbers, the pieces of the sources that have more than one, and how many rows these and the epochs
    are at most."""
    causes = _of_kind(spark, aligned, "cause", ("src", "epoch", "cause")).toArrow()
    causes = causes.sort_by([("src", "ascending"), ("epoch", "ascending")])
    causes = causes.append_column("id", pa.array(range(causes.num_rows), pa.int64()))
    numbers = spark.createDataFrame(causes)
    several = {src for src, epoch in runs.rows_of(causes, ("src", "epoch")) if epoch > 1}
    if not several:
        return _Numbers(numbers, numbers.select("src", "id")), None, causes.num_rows
    alone = pa.array([src not in several for src in causes.column("src").to_pylist()])
    single = spark.createDataFrame(causes.filter(alone).select(["src", "id"]))
    pieces = _of_kind(spark, aligned, "piece", ("src", *align.Piece._fields))
    pieces = pieces.join(F.broadcast(numbers.select("src", "epoch", "id")), ["src", "epoch"])
    pieces = pieces.select("src", *align.Piece._fields[:-1], "id")
    return _Numbers(numbers, single), pieces, max(causes.num_rows, pieces.count())


def _host_days(
    spark: SparkSession,
    hosts: Sequence[str],
    facts: _Facts,
    found: Mapping[clocks.Key, Clock],
    days: Sequence[str],
) -> DataFrame:
    """The bit of each host among all that are in sight here, and how far its clock is ahead on a day."""
    right = Clock(0, 0)
    rows = []
    for day, some in facts.rows.items():
        for host in some:
            nearest = min(days, key=lambda each: abs(_date(each) - _date(day)), default=day)
            clock = found.get((day, host)) or found.get((nearest, host)) or right
            rows.append((host, _date(day), hosts.index(host), clock.offset))
    return runs.frame_of(spark, rows, "host string, date bigint, bit int, offset bigint")


def _moved(
    seen: DataFrame, hosts: Sequence[str], dims: Mapping[str, Mapping[str, int]], before: int, after: int
) -> DataFrame:
    """Masks over all hosts in sight -> masks over the hosts of each message's day, and who got it late."""
    cases: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for day, bits_of_day in dims.items():
        places = tuple((number, bits_of_day[host]) for number, host in enumerate(hosts) if host in bits_of_day)
        cases.setdefault(places, []).append(day)
    names = {mask: masks.names(mask, before) for mask in ("seen", "late", "stale", "other")}
    late = [
        F.expr(f"{stale} & ~{other}").alias(name)
        for stale, other, name in zip(names["stale"], names["other"], names["late"], strict=True)
    ]
    plain = [name for name in seen.columns if name not in {*names["stale"], *names["other"]}]
    seen = seen.select(*plain, *late)
    if not cases:
        return seen
    columns: list[Column] = []
    for mask in ("seen", "late"):
        moved = [(days, masks.moved(mask, dict(places), before, after)) for places, days in cases.items()]
        found = masks.chosen(moved, "day", after)
        columns += [column.alias(name) for column, name in zip(found, masks.names(mask, after), strict=True)]
    rest = [name for name in plain if name not in names["seen"]]
    return seen.select(*rest, *columns)


def _audience(
    spark: SparkSession, cells: DataFrame | pa.Table, facts: _Facts, dims: Mapping[str, Mapping[str, int]], words: int
) -> DataFrame:
    """Who can hear whom: (day, src, audience...), without src where it is the same for all."""
    rows: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for day, bits_of_day in dims.items():
        recorded = {host: facts.segments.get((day, host), set()) for host in bits_of_day}
        for segments in {segments for its_day, _, segments in facts.reach if its_day == day}:
            rows[day, segments] = listening.audience(bits_of_day, recorded, segments, words)
    columns = ", ".join(f"{name} bigint" for name in masks.names("audience", words))
    by_day = {day: mask for (day, _), mask in rows.items()}
    if all(by_day[day] == mask for (day, _), mask in rows.items()):
        return runs.frame_of(spark, [(day, *mask) for day, mask in by_day.items()], f"day string, {columns}")
    table = runs.frame_of(
        spark,
        [(day, "\n".join(segments), *mask) for (day, segments), mask in rows.items()],
        f"day string, segments string, {columns}",
    )
    if isinstance(cells, DataFrame):
        reach = _reach(cells).select("day", "src", F.array_join("segments", "\n").alias("segments"))
    else:
        here = [(*key, "\n".join(segments)) for key, (_, segments) in _reach_here(cells).items()]
        reach = runs.frame_of(spark, here, "day string, src string, segments string")
    return reach.join(F.broadcast(table), ["day", "segments"]).drop("segments")


def _known(seen: DataFrame, numbers: DataFrame, audience: DataFrame, heard: DataFrame, words: int) -> DataFrame:
    """All that is known of each message: (day, src, epoch, seq_key, chan, first, win, copies, gap_before, len) and the
    masks seen, late, listening and audience."""
    keys: list[str] = [name for name in ("day", "src") if name in audience.columns]
    heard = heard.withColumnRenamed("day", "heard_day")
    found = seen.join(F.broadcast(numbers.select("id", "src", "epoch")), "id")
    found = found.join(F.broadcast(audience) if keys == ["day"] else audience, keys, "left")
    found = found.join(
        F.broadcast(heard),
        (F.col("day") == F.col("heard_day"))
        & (F.floor(F.col("moment") / runs.MINUTE) == F.col("minute"))
        & (F.col("moment") >= F.col("since"))
        & (F.col("moment") < F.col("until")),
        "left",
    )
    masked: list[Column] = []
    for names in zip(*(masks.names(mask, words) for mask in ("seen", "listening", "audience")), strict=True):
        saw, listened, able = names
        masked.append(F.expr(f"(coalesce({listened}, 0L) & coalesce({able}, 0L)) | {saw}").alias(listened))
        masked.append(F.expr(f"coalesce({able}, 0L) | {saw}").alias(able))
    return found.select(
        *("day", "src", "epoch", "seq_key", "chan", "first", "win", "copies", "gap_before", "len"),
        *[name for mask in ("seen", "late") for name in masks.names(mask, words)],
        *masked,
    )


def _copies(
    spark: SparkSession,
    cells: DataFrame | pa.Table,
    rows: DataFrame,
    numbers: _Numbers,
    pieces: DataFrame | None,
    days: Sequence[str],
    *,
    broadcast: bool,
) -> DataFrame:
    """How many copies came to whom, minute by minute: from cells, or from rows where a cell may be of two epochs."""
    single = F.broadcast(numbers.single.select("src")) if broadcast else numbers.single.select("src")
    found = (
        _frame(spark, cells)
        .filter("dup > 0")
        .join(single, "src")
        .select("day", "src", F.lit(1).alias("epoch"), F.col("minute").alias("win"), "host", "dup")
    )
    if pieces is None:
        return found
    copies = rows.filter("verdict = 'duplicate'")
    others = (
        placed(copies, numbers.single, pieces, broadcast=broadcast)
        .join(F.broadcast(numbers.all.select("id", F.col("epoch").alias("number"))), "id")
        .join(single, "src", "left_anti")
        .select(
            runs.day_of(F.col("us")).alias("day"),
            "src",
            F.col("number").alias("epoch"),
            F.floor(F.col("us") / runs.MINUTE).alias("win"),
            "host",
            F.lit(1).cast("bigint").alias("dup"),
        )
        .filter(F.col("day").isin(*days))
    )
    return found.unionByName(others)


def _traffic(known: DataFrame, rows: DataFrame, days: Sequence[str]) -> DataFrame:
    """One row for each message. Those of nameless senders are told apart by what is in them and by the minute."""
    named = known.select("day", F.col("win").alias("minute"), "src", "chan", "len")
    nameless = (
        rows.filter((F.col("src") == runs.NAMELESS) & F.col("verdict").isin(*runs.ARRIVED))
        .select(
            runs.day_of(F.col("us")).alias("day"),
            F.floor(F.col("us") / runs.MINUTE).alias("minute"),
            *("src", "chan", "len", "peer_ip", "peer_port", "seq_key"),
        )
        .filter(F.col("day").isin(*days))
        .distinct()
        .drop("peer_ip", "peer_port", "seq_key")
    )
    form = F.when(F.col("chan") == "!", "all").when(F.col("chan").startswith("!"), "directed").otherwise("plain")
    return named.unionByName(nameless).select(
        "day", F.timestamp_micros(F.col("minute") * runs.MINUTE).alias("win"), "src", "chan", form.alias("form"), "len"
    )
