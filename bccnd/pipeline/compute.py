"""From files of a journal to tables: what is done in which order, and what is kept for later runs.

Invariant: the tables of a day are the same whether it is computed alone or with others, and whatever the order in which
files came: they follow from its rows, those of a margin around it, and what is kept of other days (`Result.state`).

Rows are read once (scan.py). From what the scan emits follow, one after the other: which receivers there were and how
far their clocks are apart; the epochs of sources; messages; and from these all tables. Only where a clock is wrong by
half a minute or more is the journal read a second time, with the times of that host put right.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from bccnd.errors import PipelineError
from bccnd.pipeline import clocks, day_state, epoch_alignment, input_history, schema, task_records
from bccnd.pipeline.block_gaps import Gaps
from bccnd.pipeline.clocks import Clock
from bccnd.pipeline.epoch_assignment import Placement
from bccnd.pipeline.input_history import Stretch as Session
from bccnd.pipeline.journal_files import MARGIN, Input, Journal
from bccnd.pipeline.messages import Context, arrivals
from bccnd.pipeline.number_runs import Stretch, runs
from bccnd.pipeline.receivers import Seen, Span, receivers, recorded
from bccnd.pipeline.scan import ROWS, Plan, counted, estimate, scan, spans_of
from bccnd.pipeline.tables.channel_traffic import channel_traffic
from bccnd.pipeline.tables.delivery import delivery
from bccnd.pipeline.tables.epochs import epochs as epochs_table
from bccnd.pipeline.tables.epochs import of_days
from bccnd.pipeline.tables.integrity import integrity
from bccnd.pipeline.tables.liveness import kept as kept_silences
from bccnd.pipeline.tables.losses import channel_loss, link_loss
from bccnd.pipeline.tables.missed import missed

#: bytes of journals for each part that Spark divides rows of tables into
PART: Final = 32 << 20
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
#: what alignment emits, kind by kind: `run` and `mark` as they are kept (`schema.ALIGN`), `epoch` (its number in epoch,
#: the cause in host), `piece` (an `epoch_alignment.Piece`)
_ALIGNED: Final = StructType(
    [StructField("day", StringType()), *(one for one in schema.ALIGN.fields if one.name != "hosts")]
)


@dataclass(frozen=True)
class Result:
    """All tables of the days that were computed; `epochs` has those of all days known, and `liveness` is missing, which
    follows from ``heard`` of all days.

    ``tables`` have their columns of schema.py and ``day`` (a date). ``state`` and ``heard`` are what is to be kept of
    these days, ``files`` what they were made of. ``renumbered`` are other days whose rows go to other epochs now, or
    follow other numbers: they have to be computed again. ``corrections`` are those of wrong clocks (clocks.py), on
    these days and all others known. `close` once all of it was used.
    """

    days: list[str]
    tables: dict[str, DataFrame]
    state: DataFrame
    heard: DataFrame
    files: list[input_history.Records]
    renumbered: list[str]
    corrections: Mapping[clocks.Key, int]
    kept: ExitStack

    def close(self) -> None:
        """Give back what Spark holds."""
        self.kept.close()


def compute(
    spark: SparkSession,
    journal: Journal,
    sessions: Sequence[Session],
    *,
    days: Collection[str] | None = None,
    state: DataFrame | None = None,
    journals: Sequence[Span] = (),
    margin: datetime.timedelta = MARGIN,
) -> Result:
    """The tables of ``days``, by default of all that there are.

    ``sessions`` are all sessions; ``state`` and ``journals`` (from when to when each had rows) are what was kept of all
    other days; ``margin`` is a day at most: rows that near to these days are looked at as well. Raises PipelineError:
    foreign_file, misplaced, twice, changed.
    """
    with ExitStack() as kept:

        def keep(frame: DataFrame) -> DataFrame:
            kept.callback(frame.persist(StorageLevel.DISK_ONLY).unpersist)
            return frame

        inputs = _inputs(journal, days, margin)
        tasks = spark.sparkContext.defaultParallelism
        buckets = max(tasks, math.ceil(estimate(inputs) / ROWS))
        _divide(spark, inputs)
        certain: dict[str, int] = {}
        for one, rows_of_file in counted(inputs):
            certain[one.file.day] = certain.get(one.file.day, 0) + (rows_of_file or 0)
        least = min((clocks.parts_of(each) for day, each in certain.items() if days is None or day in days), default=1)
        spans = None if days is None else spans_of(days, margin)
        plan = Plan(journal.where, spans, {}, buckets, least)
        scanned = _Scanned(keep(scan(spark, inputs, plan)), journal, inputs)
        wanted = sorted(scanned.days if days is None else set(days))
        apart = _apart(scanned, wanted, least)
        others = clocks.kept(state, wanted)
        computed = wanted
        offsets = clocks.offsets(apart)
        corrections, guessed = clocks.corrections(offsets, scanned.hosts, wanted, others)
        if corrections:
            plan = replace(plan, corrections=corrections)
            scanned = _Scanned(keep(scan(spark, inputs, plan)), journal, inputs)
            wanted = sorted(scanned.days) if days is None else wanted
        if days is None:
            margin += clocks.widest(wanted, corrections)
        found_clocks = clocks.left(offsets, corrections, others)
        right = clocks.sessions_put_right(sessions, corrections)

        its_runs = None if state is None else state.where("kind = 'run'")
        spans_of_journals = [*journals, *(row.span for row in scanned.seen if row.day in wanted)]
        its_recorded = recorded(right, spans_of_journals)
        aligned = keep(_align(scanned.kind("stretch", wanted), its_runs, found_clocks, its_recorded, tasks))
        divided = (
            aligned.where("kind IN ('epoch', 'piece')").select("kind", "src", *epoch_alignment.Piece._fields).toArrow()
        )
        epochs = divided.filter(pc.equal(divided["kind"], "epoch")).select(["src", "epoch", "host"])
        pieces = divided.filter(pc.equal(divided["kind"], "piece")).drop_columns("kind")
        reached = day_state.reached(state, wanted)
        context = Context(
            _placement(epochs, pieces),
            receivers(
                scanned.seen, scanned.segments, right, wanted, {key: one.offset for key, one in found_clocks.items()}
            ),
            _ahead(scanned.hosts, found_clocks, wanted),
            frozenset(wanted),
            tuple(sorted({row.host for row in scanned.seen} | {session.host for session in right})),
            reached,
        )
        known = keep(_messages(spark, scanned.kind("part"), context))
        gaps = Gaps(spark, known, reached, frozenset(wanted))
        causes = task_records.frame_of(spark, epochs.rename_columns(["src", "epoch", "cause"]))
        all_epochs = keep(day_state.all_days(task_records.of_kind(known, "epoch").transform(of_days), state))
        marks = aligned.where("kind = 'mark'").select("day", "src", F.col("from_rec").alias("mark"))
        made = {
            "receiver_sets": task_records.of_kind(known, "set").withColumn("hosts", F.split("hosts", "\n")).distinct(),
            "epochs": all_epochs.transform(epochs_table, causes),
            "messages": task_records.of_kind(known, "message").transform(gaps.added),
            "link_loss": gaps.with_kind("link").transform(link_loss),
            "delivery": task_records.of_kind(known, "delivered").transform(delivery),
            "channel_loss": gaps.with_kind("channel").transform(channel_loss),
            "missed": gaps.with_kind("missed").transform(missed),
            "channel_traffic": task_records.of_kind(known, "lengths").transform(
                channel_traffic, scanned.kind("nameless", wanted)
            ),
            "integrity": scanned.kind("refused", wanted).transform(integrity),
            "skew": _skew(spark, apart, wanted),
        }
        of_days_now = scanned.records.where(F.col("day").isin(*wanted))
        return Result(
            wanted,
            {name: schema.conform(name, frame) for name, frame in made.items()},
            day_state.kept(
                aligned.where("kind IN ('run', 'mark')").where(F.col("day").isin(*wanted)),
                all_epochs,
                task_records.frame_of(spark, clocks.to_keep(corrections, guessed, computed)),
            ),
            kept_silences(of_days_now, scanned.kind("receiver", wanted), tasks),
            input_history.of_days(scanned.files, wanted, margin),
            sorted({*day_state.renumbered(marks, state, wanted), *day_state.preceded(all_epochs, state)}),
            corrections,
            kept.pop_all(),
        )


class _Scanned:
    """What the scan has emitted, and what follows from it of receivers."""

    def __init__(self, records: DataFrame, journal: Journal, inputs: Sequence[Input]) -> None:
        self.records = records
        table = records.where("kind IN ('problem', 'file', 'receiver', 'reach')").drop("data").toArrow()
        for problem in task_records.fields_of(table, "problem").to_pylist():
            raise PipelineError(problem["reason"], problem["why"], problem["remedy"])
        self.files = [input_history.Records(**row, day="") for row in task_records.fields_of(table, "file").to_pylist()]
        journal.check_read(inputs, {one.path: one.rows for one in self.files})
        self.seen = [Seen(**row) for row in task_records.fields_of(table, "receiver").to_pylist()]
        self.hosts: dict[str, set[str]] = {}
        for row in self.seen:
            self.hosts.setdefault(row.day, set()).add(row.host)
        self.days = set(self.hosts)
        reach = task_records.fields_of(table, "reach").group_by(["day", "src", "host", "segment"]).aggregate([])
        hosts: dict[tuple[str, str], set[str]] = {}
        segments: dict[tuple[str, str], set[str]] = {}
        for row in reach.to_pylist():
            key = row["day"], row["src"]
            hosts.setdefault(key, set()).add(row["host"])
            segments.setdefault(key, set()).add(row["segment"] or "")
        #: the hosts that heard each (day, src), and the segments on which they did
        self.reach = {key: tuple(sorted(its)) for key, its in hosts.items()}
        self.segments = {key: tuple(sorted(its)) for key, its in segments.items()}

    def kind(self, kind: str, days: Sequence[str] | None = None) -> DataFrame:
        return task_records.of_kind(self.records, kind, days)


def _inputs(journal: Journal, days: Collection[str] | None, margin: datetime.timedelta) -> list[Input]:
    """The files that can have rows of these days and of a margin around them."""
    if days is None:
        return list(journal.files)
    near = {
        task_records.day_of(date)
        for span in spans_of(days, margin)
        for date in range(span.low // task_records.DAY, -(-span.high // task_records.DAY))
    }
    return [one for one in journal.files if one.file.day in near]


def _divide(spark: SparkSession, inputs: Sequence[Input]) -> None:
    """Have Spark divide tables into as many parts as are worth it, unless that was set: its usual 200 parts cost a
    small journal minutes."""
    context = spark.sparkContext
    if not context.getConf().contains(_PARTITIONS):
        size = sum(one.size for one in inputs)
        spark.conf.set(_PARTITIONS, max(context.defaultParallelism, size // PART))


def _apart(scanned: _Scanned, days: Sequence[str], least: int) -> list[clocks.Apart]:
    """How far clocks are apart on each day."""
    reference: dict[str, dict[str, str]] = {}
    parts: dict[str, int] = {}
    for day in days:
        new = dict.fromkeys(scanned.hosts.get(day, ()), 0)
        total = 0
        for row in scanned.seen:
            if row.day == day:
                new[row.host] += row.new
                total += row.rows
        reference[day] = clocks.references(new, {hosts for key, hosts in scanned.reach.items() if key[0] == day})
        parts[day] = max(clocks.parts_of(total), least)

    def compare(table: pa.Table) -> pa.Table:
        day = table["day"][0].as_py()
        samples = zip(table["host"].to_pylist(), table["data"].to_pylist(), strict=True)
        found = clocks.apart(day, samples, reference[day], parts[day])
        return pa.Table.from_pylist([one._asdict() for one in found], _APART)

    sampled = scanned.kind("sample", days).groupBy("day").applyInArrow(compare, from_arrow_schema(_APART))
    return [clocks.Apart(*row) for row in sampled.collect()]


_APART: Final = pa.schema(
    [
        *((name, pa.string()) for name in clocks.Apart._fields[:3]),
        *((name, pa.int64()) for name in clocks.Apart._fields[3:]),
    ]
)


def _skew(spark: SparkSession, apart: Sequence[clocks.Apart], days: Sequence[str]) -> DataFrame:
    """The table."""
    table = pa.Table.from_pylist([one._asdict() for one in apart if one.day in days], _APART)
    return task_records.frame_of(
        spark, table.rename_columns(["day", "host", "ref_host", "p05_us", "p50_us", "p95_us", "n"])
    )


def _ahead(
    hosts: Mapping[str, Collection[str]], found: Mapping[clocks.Key, Clock], days: Sequence[str]
) -> dict[tuple[str, str], int]:
    """By how much the clock of each host is ahead on each day with rows; on those beside, as on the nearest."""
    ahead = {}
    for day, its in hosts.items():
        nearest = min(days, key=lambda each: abs(task_records.date_of(each) - task_records.date_of(day)), default=day)
        for host in its:
            clock = found.get((day, host)) or found.get((nearest, host))
            if clock and clock.offset:
                ahead[day, host] = clock.offset
    return ahead


def _align(
    stretches: DataFrame,
    kept: DataFrame | None,
    found: Mapping[clocks.Key, Clock],
    its_recorded: Mapping[str, Sequence[tuple[int, int]]],
    tasks: int,
) -> DataFrame:
    """What alignment says of all sources, of all days known, in the shape of _ALIGNED; with the runs of the days
    computed now."""

    def one(new: pa.Table, old: pa.Table) -> pa.Table:
        its: dict[str, list[Stretch]] = {}
        for src, *row in zip(*(new[name].to_pylist() for name in ("src", *Stretch._fields)), strict=True):
            its.setdefault(src, []).append(Stretch(*row))
        known: dict[str, list[epoch_alignment.Run]] = {}
        for src, *row in zip(*(old[name].to_pylist() for name in ("src", *epoch_alignment.Run._fields)), strict=True):
            known.setdefault(src, []).append(epoch_alignment.Run(*row))
        records = []
        for src in dict.fromkeys([*its, *known]):
            records += _aligned(src, its.get(src, []), known.get(src, []), found, its_recorded)
        return pa.Table.from_pylist(records, to_arrow_schema(_ALIGNED))

    bucket = F.pmod(F.xxhash64("src"), F.lit(tasks))
    if kept is None:
        empty = pa.schema(
            [("src", pa.string()), *((name, pa.int64()) for name in epoch_alignment.Run._fields)]
        ).empty_table()
        return stretches.groupBy(bucket).applyInArrow(lambda table: one(table, empty), _ALIGNED)
    return (
        stretches.groupBy(bucket)
        .cogroup(kept.select("src", *epoch_alignment.Run._fields).groupBy(bucket))
        .applyInArrow(one, _ALIGNED)
    )


def _aligned(
    src: str,
    stretches: Sequence[Stretch],
    kept: Sequence[epoch_alignment.Run],
    found: Mapping[clocks.Key, Clock],
    its_recorded: Mapping[str, Sequence[tuple[int, int]]],
) -> list[dict[str, object]]:
    """What alignment says of a source."""
    right = Clock(0, 0)
    new = []
    for run in runs(stretches):
        clock = found.get((run.day, run.host), right)
        new.append(run._replace(offset=clock.offset, spread=clock.spread))
    every = [*new, *kept]
    spans = [span for host in {run.host for run in every} for span in its_recorded.get(host, ())]
    alignment = epoch_alignment.align(every, epoch_alignment.joined(spans))
    records: list[dict[str, object]] = [run._asdict() | {"kind": "run"} for run in new]
    records += [{"kind": "epoch", "epoch": one.number, "host": one.cause} for one in alignment.epochs]
    records += [piece._asdict() | {"kind": "piece"} for piece in alignment.pieces]
    records += [{"kind": "mark", "day": day, "from_rec": mark} for day, mark in alignment.marks.items()]
    for record in records:
        record["src"] = src
    return records


def _placement(epochs: pa.Table, pieces: pa.Table) -> Placement:
    return Placement.of(
        zip(epochs["src"].to_pylist(), epochs["epoch"].to_pylist(), strict=True),
        (
            (src, epoch_alignment.Piece(*row))
            for src, *row in zip(*(column.to_pylist() for column in pieces.columns), strict=True)
        ),
    )


def _messages(spark: SparkSession, parts: DataFrame, context: Context) -> DataFrame:
    """The records of all messages."""
    shared = spark.sparkContext.broadcast(context)
    return parts.groupBy("bucket").applyInArrow(lambda table: arrivals(table, shared.value), task_records.RECORD_SHAPE)
