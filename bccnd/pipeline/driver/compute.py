"""Computes tables from the files of a journal: in which order, and what is kept for later runs.

Invariant: the tables of a day are the same whether it is computed alone or with others, and whatever the order in which
files came: they follow from its rows, those of a margin around it, and what is kept of other days (`Result.state`).

Rows are read once (journal_scan.py). From what the scan emits follow, one after the other: which receivers there were
and how far their clocks are apart; the epochs of sources; messages; and from these all tables. Only where a clock is
wrong by half a minute or more is the journal read a second time, with the times of that host put right.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from bccnd.pipeline.alignment.epoch_alignment import align
from bccnd.pipeline.alignment.epoch_assignment import EpochAssignment
from bccnd.pipeline.alignment.joined_runs import Stretch, runs
from bccnd.pipeline.counting.block_gaps import BlockGaps
from bccnd.pipeline.counting.messages import Context, message_records
from bccnd.pipeline.counting.reported_tails import ReportedTails, with_tails
from bccnd.pipeline.driver import day_state
from bccnd.pipeline.driver.final_days import Carry
from bccnd.pipeline.hosts import clocks
from bccnd.pipeline.hosts.clocks import Clock
from bccnd.pipeline.hosts.reach import find_reach
from bccnd.pipeline.hosts.receiving_hosts import JournalSpan, Seen, find_receivers, recorded
from bccnd.pipeline.inputs import input_history
from bccnd.pipeline.inputs.damaged_files import DamagedFile, find_damaged
from bccnd.pipeline.inputs.input_history import Session
from bccnd.pipeline.inputs.journal_files import MARGIN, Input, Journal
from bccnd.pipeline.inputs.session_files import without_damaged
from bccnd.pipeline.records.source_runs import Carried, Piece, Run, SentRange, Tail
from bccnd.pipeline.records.task_records import DAY, KINDS, RECORD_SHAPE, date_of, fields_of, frame_of, of_kind
from bccnd.pipeline.records.time_spans import joined
from bccnd.pipeline.scanning.journal_scan import BUCKET, ROWS, Plan, block_of, count_rows, scan, spans_of
from bccnd.pipeline.scanning.sent_ranges import merge_ranges
from bccnd.pipeline.tables import schema
from bccnd.pipeline.tables.channel_traffic import channel_traffic
from bccnd.pipeline.tables.delivery import delivery
from bccnd.pipeline.tables.epochs import epochs as epochs_table
from bccnd.pipeline.tables.epochs import of_days
from bccnd.pipeline.tables.integrity import integrity
from bccnd.pipeline.tables.liveness import kept as kept_silences
from bccnd.pipeline.tables.loss_by_minute import channel_loss, link_loss
from bccnd.pipeline.tables.missed_numbers import missed

_Row = TypeVar("_Row", Stretch, Run, Carried, SentRange, Tail)

#: bytes of journals for each part that Spark divides rows of tables into
PART: Final = 32 << 20
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
#: what alignment emits, kind by kind: `run`, `sent` and `mark` as they are kept (`schema.ALIGN`), `epoch` (its number
#: in epoch, the cause in host), `piece` (a `Piece`), `tail` (a `Tail`: key, ts and moment in hi_key, from_ts and to_ts)
_ALIGNED: Final = StructType(
    [StructField("day", StringType()), *(column for column in schema.ALIGN.fields if column.name != "hosts")]
)
#: the columns of it that hold the fields of a `SentRange` and of a `Tail`
_SENT_FIELDS: Final = ("day", "lo_key", "hi_key", "from_ts", "to_ts")
_TAIL_FIELDS: Final = ("day", "epoch", "hi_key", "from_ts", "to_ts")


@dataclass(frozen=True)
class Result:
    """All tables of the days that were computed; `epochs` has those heard on any day whose state is known, and
    `liveness` is missing, which follows from ``heard`` of all days.

    ``tables`` have their columns of schema.py and ``day`` (a date). ``state`` and ``heard`` are what is to be kept of
    these days, ``files`` what they were made of, ``damaged`` the files that were left out. ``renumbered`` are other
    days whose rows go to other epochs now, or follow other numbers: they have to be computed again. ``corrections`` are
    those of wrong clocks (clocks.py), on these days and all others known. `close` once all of it was used.
    """

    days: list[str]
    tables: dict[str, DataFrame]
    state: DataFrame
    heard: DataFrame
    files: list[input_history.Records]
    damaged: list[DamagedFile]
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
    journals: Sequence[JournalSpan] = (),
    margin: datetime.timedelta = MARGIN,
    carry: Carry | None = None,
) -> Result:
    """The tables of ``days``, by default of all that there are.

    ``sessions`` are all sessions; ``state`` and ``journals`` (from when to when each had rows) are what was kept of all
    other days, or of those behind the days that are only known by a ``carry``; ``margin`` is a day at most: rows that
    near to these days are looked at as well. Raises PipelineError: twice, changed.
    """
    with ExitStack() as kept:

        def keep(frame: DataFrame) -> DataFrame:
            kept.callback(frame.persist(StorageLevel.DISK_ONLY).unpersist)
            return frame

        inputs = inputs_of(journal, days, margin)
        tasks = spark.sparkContext.defaultParallelism
        set_partitions(spark, inputs)
        plan, readers = _plan(journal, inputs, days, margin, tasks)

        def scan_with(corrections: Mapping[clocks.Key, int]) -> _Scanned:
            corrected = replace(plan, corrections=corrections)
            return _Scanned(keep(scan(spark, inputs, corrected, readers)), journal, inputs)

        scanned = scan_with({})
        computed = sorted(scanned.hosts if days is None else set(days))
        found = _Clocks.of(scanned, computed, plan.parts, clocks.kept(state, computed))
        if found.corrections:
            scanned = scan_with(found.corrections)
        wanted = sorted(scanned.hosts) if days is None else computed
        if days is None:
            margin += clocks.widest(wanted, found.corrections)
        right_sessions = clocks.correct_sessions(without_damaged(sessions, scanned.damaged), found.corrections)

        kept_runs = None if state is None else state.where("kind IN ('run', 'sent')")
        recording = recorded(right_sessions, [*journals, *(row.span for row in scanned.seen if row.day in wanted)])
        carried = None if carry is None else carry.epochs
        aligned = keep(_align(scanned.sources(wanted), kept_runs, carried, found.remaining, recording, tasks))
        alignment = _Alignment(aligned, wanted)
        before = day_state.with_carried(state, carried)
        reached = with_tails(day_state.reached(before, wanted), alignment.tails, wanted)
        ahead = {key: clock.offset for key, clock in found.remaining.items()}
        context = Context(
            EpochAssignment.of(alignment.epochs, alignment.pieces),
            find_receivers(scanned.seen, scanned.reach, right_sessions, wanted, ahead),
            _offsets(scanned.hosts, ahead, wanted),
            frozenset(wanted),
            tuple({row.host for row in scanned.seen} | {session.host for session in right_sessions}),
            plan.block,
            reached,
            alignment.tails,
        )
        shared = spark.sparkContext.broadcast(context)
        kept.callback(shared.destroy)
        parts = scanned.kind("part").groupBy("bucket")
        messages = keep(parts.applyInArrow(lambda table: message_records(table, shared.value), RECORD_SHAPE))
        gaps = BlockGaps(spark, messages, reached, frozenset(wanted))
        reported = ReportedTails(spark, messages, alignment.tails, reached, context.receivers)
        heard_epochs = reported.added("epoch", of_kind(messages, "epoch"))
        all_epochs = keep(day_state.all_days(heard_epochs.transform(of_days), before))
        causes = frame_of(spark, alignment.epochs.rename_columns(["src", "epoch", "cause"]))
        epoch_rows = all_epochs.transform(epochs_table, causes)
        if carry is not None:
            heard = all_epochs.where(F.col("day") >= carry.first).select("src", "epoch").distinct()
            epoch_rows = epoch_rows.join(heard, ["src", "epoch"])
        tables = _loss_tables(messages, gaps, reported) | {
            "epochs": epoch_rows,
            "channel_traffic": channel_traffic(of_kind(messages, "lengths"), scanned.kind("nameless", wanted)),
            "integrity": integrity(scanned.kind("refused", wanted)),
            "skew": _skew_table(spark, found.skews, wanted),
        }
        return Result(
            wanted,
            {name: schema.conform(name, frame) for name, frame in tables.items()},
            day_state.kept(
                aligned.where("kind IN ('run', 'sent', 'mark')").where(F.col("day").isin(*wanted)),
                all_epochs,
                frame_of(spark, clocks.to_keep(found.corrections, found.guessed, computed)),
            ),
            kept_silences(scanned.records.where(F.col("day").isin(*wanted)), scanned.kind("receiver", wanted), tasks),
            input_history.of_days(scanned.files, wanted, margin),
            scanned.damaged,
            sorted({*day_state.renumbered(alignment.marks, state, wanted), *day_state.preceded(all_epochs, state)}),
            found.corrections,
            kept.pop_all(),
        )


def _plan(
    journal: Journal, inputs: Sequence[Input], days: Collection[str] | None, margin: datetime.timedelta, tasks: int
) -> tuple[Plan, int]:
    """How the work is divided, while no clock is known to be wrong; and into how many tasks that read."""
    rows = count_rows(journal, inputs)
    rows_of_days: dict[str, int] = {}
    for file in inputs:
        rows_of_days[file.name.day] = rows_of_days.get(file.name.day, 0) + rows.get(file.path, 0)
    total = sum(rows.values())
    plan = Plan(
        journal.where,
        None if days is None else spans_of(days, margin),
        {},
        max(tasks, math.ceil(total / BUCKET)),
        block_of(len({file.name.host for file in inputs})),
        {day: clocks.parts_of(count) for day, count in rows_of_days.items()},
    )
    return plan, max(tasks, math.ceil(total / ROWS))


def _loss_tables(messages: DataFrame, gaps: BlockGaps, reported: ReportedTails) -> dict[str, DataFrame]:
    """The tables of messages, and of the hosts that did or did not receive them."""
    return {
        "receiver_sets": of_kind(messages, "set").withColumn("hosts", F.split("hosts", "\n")).distinct(),
        "messages": gaps.added(of_kind(messages, "message")),
        "link_loss": link_loss(reported.added("link", gaps.with_kind("link"))),
        "delivery": delivery(of_kind(messages, "delivered")),
        "channel_loss": channel_loss(gaps.with_kind("channel")),
        "missed": missed(reported.added("missed", gaps.with_kind("missed"))),
    }


class _Scanned:
    """What the scan has emitted, and what follows from it of receivers."""

    def __init__(self, records: DataFrame, journal: Journal, inputs: Sequence[Input]) -> None:
        self.records = records
        table = records.where("kind IN ('problem', 'file', 'receiver')").drop("data").toArrow()
        problems = {row["path"]: row["why"] for row in fields_of(table, "problem").to_pylist()}
        read = (input_history.Records(**row, day="") for row in fields_of(table, "file").to_pylist())
        self.files = [file for file in read if file.path not in problems]
        spans = {file.path: (file.low, file.high) for file in self.files}
        self.damaged = list(find_damaged(inputs, problems, spans))
        journal.check_read(inputs, {file.path: file.rows for file in self.files})
        self.seen = [Seen(**row) for row in fields_of(table, "receiver").to_pylist()]
        self.hosts: dict[str, set[str]] = {}
        for row in self.seen:
            self.hosts.setdefault(row.day, set()).add(row.host)
        self.reach = find_reach(of_kind(records, "reach"))

    def sources(self, days: Sequence[str]) -> DataFrame:
        """Records `stretch` and `sent`, under the names of fields that both have."""
        names = KINDS["stretch"].items()
        records = self.records.where("kind IN ('stretch', 'sent')").where(F.col("day").isin(list(days)))
        return records.select("kind", *[F.col(column).alias(name) for name, column in names])

    def kind(self, kind: str, days: Sequence[str] | None = None) -> DataFrame:
        return of_kind(self.records, kind, days)


class _Clocks(NamedTuple):
    """How far the clocks of hosts are apart, the ``corrections`` of those that are wrong (``guessed`` where nothing
    compares them), and what ``remaining`` differs when these are put right."""

    skews: list[clocks.Skew]
    corrections: Mapping[clocks.Key, int]
    guessed: Collection[clocks.Key]
    remaining: Mapping[clocks.Key, Clock]

    @classmethod
    def of(cls, scanned: _Scanned, days: Sequence[str], parts: Mapping[str, int], known: clocks.KeptClocks) -> _Clocks:
        skews = _compare_clocks(scanned, days, parts)
        offsets = clocks.offsets(skews)
        corrections, guessed = clocks.corrections(offsets, scanned.hosts, days, known)
        return cls(skews, corrections, guessed, clocks.remaining(offsets, corrections, known))


class _Alignment:
    """What the alignment of all sources has found, in the memory of this process but for the marks."""

    def __init__(self, aligned: DataFrame, wanted: Sequence[str]) -> None:
        divided = aligned.where("kind IN ('epoch', 'piece', 'tail')").select("kind", "src", *Piece._fields, "day")
        table = divided.toArrow()
        self.epochs = _only(table, "epoch").select(["src", "epoch", "host"])
        self.pieces = _only(table, "piece").drop_columns(["kind", "day"])
        tails = _only(table, "tail")
        wanted_tails = tails.filter(pc.is_in(tails["day"], pa.array(wanted, pa.string())))
        self.tails = _by_source(wanted_tails, Tail, _TAIL_FIELDS)
        self.marks = aligned.where("kind = 'mark'").select("day", "src", F.col("from_rec").alias("mark"))


def inputs_of(journal: Journal, days: Collection[str] | None, margin: datetime.timedelta) -> list[Input]:
    """The files that can have rows of these days and of a margin around them."""
    if days is None:
        return journal.files
    starts = [date_of(day) * DAY for day in days]
    touched_days = input_history.touched([(start, start + DAY - 1) for start in starts], margin)
    return [file for file in journal.files if file.name.day in touched_days]


def set_partitions(spark: SparkSession, inputs: Sequence[Input]) -> None:
    """Have Spark divide tables into as many parts as are worth it, unless that was set: its usual 200 parts cost a
    small journal minutes."""
    context = spark.sparkContext
    if not context.getConf().contains(_PARTITIONS):
        size = sum(file.size for file in inputs)
        spark.conf.set(_PARTITIONS, max(context.defaultParallelism, size // PART))


def _compare_clocks(scanned: _Scanned, days: Sequence[str], sampled: Mapping[str, int]) -> list[clocks.Skew]:
    """How far clocks are apart on each day."""
    reference: dict[str, dict[str, str]] = {}
    parts: dict[str, int] = {}
    by_day: dict[str, list[Seen]] = {day: [] for day in days}
    for row in scanned.seen:
        by_day.setdefault(row.day, []).append(row)
    for day in days:
        seen = by_day[day]
        new = dict.fromkeys((row.host for row in seen), 0)
        for row in seen:
            new[row.host] += row.new
        reference[day] = clocks.references(new, scanned.reach.hearers.get(day, ()))
        parts[day] = max(clocks.parts_of(sum(row.rows for row in seen)), sampled.get(day, 1))

    def compare(table: pa.Table) -> pa.Table:
        day = table["day"][0].as_py()
        samples = zip(table["host"].to_pylist(), table["data"].to_pylist(), strict=True)
        return _skews(clocks.compare(day, samples, reference[day], parts[day]))

    samples = scanned.kind("sample", days).groupBy("day")
    return [clocks.Skew(*row) for row in samples.applyInArrow(compare, from_arrow_schema(_skews([]).schema)).collect()]


def _skews(skews: Sequence[clocks.Skew]) -> pa.Table:
    names = clocks.Skew._fields
    shape = pa.schema([(name, pa.string() if name in names[:3] else pa.int64()) for name in names])
    return pa.Table.from_pylist([skew._asdict() for skew in skews], shape)


def _skew_table(spark: SparkSession, skews: Sequence[clocks.Skew], days: Sequence[str]) -> DataFrame:
    table = _skews([skew for skew in skews if skew.day in days])
    return frame_of(spark, table.rename_columns(["day", "host", "ref_host", "p05_us", "p50_us", "p95_us", "n"]))


def _offsets(
    hosts: Mapping[str, Collection[str]], ahead: Mapping[clocks.Key, int], days: Sequence[str]
) -> dict[clocks.Key, int]:
    """By how much the clock of each host is ahead on each day with rows; on those beside, as on the nearest."""
    offsets = {}
    for day, hosts_of_day in hosts.items():
        nearest = min(days, key=lambda computed: abs(date_of(computed) - date_of(day)), default=day)
        for host in hosts_of_day:
            if offset := ahead.get((day, host)) or ahead.get((nearest, host)):
                offsets[day, host] = offset
    return offsets


def _align(
    sources: DataFrame,
    kept: DataFrame | None,
    carried: DataFrame | None,
    host_clocks: Mapping[clocks.Key, Clock],
    recording: Mapping[str, Sequence[tuple[int, int]]],
    tasks: int,
) -> DataFrame:
    """The alignment of all sources, on all days whose runs are known, in the shape of _ALIGNED; with the runs of the
    days computed now."""

    def align_sources(new: pa.Table, old: pa.Table | None = None) -> pa.Table:
        stretches, sent = _by_source(_only(new, "stretch"), Stretch), _received(_only(new, "sent"), host_clocks)
        kept_runs: dict[str, list[Run]] = {}
        last_epochs: dict[str, list[Carried]] = {}
        sent_before: dict[str, list[SentRange]] = {}
        if old is not None:
            kept_runs = _by_source(_only(old, "run"), Run)
            last_epochs = _by_source(_only(old, "carried"), Carried)
            sent_before = _by_source(_only(old, "sent"), SentRange, _SENT_FIELDS)
        records = []
        reported = [src for src in (*sent, *sent_before) if src in last_epochs]
        for src in dict.fromkeys([*stretches, *kept_runs, *reported]):
            new_runs = []
            for run in runs(stretches.get(src, ())):
                clock = host_clocks.get((run.day, run.host), Clock(0, 0))
                new_runs.append(run._replace(offset=clock.offset, spread=clock.spread))
            last_epoch = next(iter(last_epochs.get(src, ())), None)
            ranges = merge_ranges(sent.get(src, ())), sent_before.get(src, [])
            records += _aligned(src, new_runs, kept_runs.get(src, []), last_epoch, *ranges, recording)
        return pa.Table.from_pylist(records, to_arrow_schema(_ALIGNED))

    bucket = F.pmod(F.xxhash64("src"), F.lit(tasks))
    grouped = sources.groupBy(bucket)
    if kept is None:
        return grouped.applyInArrow(lambda table: align_sources(table), _ALIGNED)
    kept = kept.select("kind", "src", *Run._fields)
    if carried is not None:
        epochs = carried.select(F.lit("carried").alias("kind"), "src", *Carried._fields)
        kept = kept.unionByName(epochs, allowMissingColumns=True)
    return grouped.cogroup(kept.groupBy(bucket)).applyInArrow(align_sources, _ALIGNED)


def _only(table: pa.Table, kind: str) -> pa.Table:
    return table.filter(pc.equal(table["kind"], kind))


def _received(table: pa.Table, host_clocks: Mapping[clocks.Key, Clock]) -> dict[str, list[SentRange]]:
    """What reports say was sent, by source, from records `sent`."""
    ranges: dict[str, list[SentRange]] = {}
    for row in table.to_pylist():
        day, ts = row["day"], row["from_ts"]
        moment = ts - host_clocks.get((day, row["host"]), Clock(0, 0)).offset
        ranges.setdefault(row["src"], []).append(SentRange(day, row["lo_key"], row["hi_key"], ts, moment))
    return ranges


def _by_source(table: pa.Table, row_type: type[_Row], columns: Sequence[str] = ()) -> dict[str, list[_Row]]:
    """The rows of each source, from the columns of the same names as the fields of a row, or from these."""
    rows: dict[str, list[_Row]] = {}
    for row in table.to_pylist():
        rows.setdefault(row["src"], []).append(row_type(*map(row.get, columns or row_type._fields)))
    return rows


def _aligned(
    src: str,
    new: Sequence[Run],
    kept: Sequence[Run],
    carried: Carried | None,
    sent: Sequence[SentRange],
    sent_before: Sequence[SentRange],
    recording: Mapping[str, Sequence[tuple[int, int]]],
) -> list[dict[str, object]]:
    """The records of one source."""
    all_runs = [*new, *kept]
    spans = [span for host in {run.host for run in all_runs} for span in recording.get(host, ())]
    alignment = align(all_runs, joined(spans), carried, [*sent, *sent_before])
    records: list[dict[str, object]] = [run._asdict() | {"kind": "run"} for run in new]
    records += [dict(zip(_SENT_FIELDS, sent_range, strict=True)) | {"kind": "sent"} for sent_range in sent]
    records += [dict(zip(_TAIL_FIELDS, tail, strict=True)) | {"kind": "tail"} for tail in alignment.tails]
    records += [{"kind": "epoch", "epoch": epoch.number, "host": epoch.cause} for epoch in alignment.epochs]
    records += [piece._asdict() | {"kind": "piece"} for piece in alignment.pieces]
    records += [{"kind": "mark", "day": day, "from_rec": mark} for day, mark in alignment.marks.items()]
    return [record | {"src": src} for record in records]
