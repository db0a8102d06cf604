"""What the scan emits of a batch of rows, kind by kind (`task_records.KINDS`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from bccnd.core.formats.tap_record import JOURNAL_GAP
from bccnd.pipeline.records import task_records
from bccnd.pipeline.records.row_batch import GOLDEN, Batch, Groups, Numbers, changes, grouped, mixed, sorted_by
from bccnd.pipeline.records.task_records import ARRIVED, COMPARED, NAMELESS, NEW, ONCE
from bccnd.pipeline.scanning.stretches import stretches

#: microseconds: silences that are not longer are none, and messages closer to each other are one stretch
QUIET: Final = 5_000_000
#: how the rows of a part and of a sample are laid out
PART: Final = ("src", "chan", "rec_no", "ts", "seq_key", "len", "state")
#: what became of a row: a copy, late, or neither
FRESH, STALE, COPY = 0, 1, 2


def records(batch: Batch, buckets: int, block: int, parts: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    """All that is emitted of a batch: messages in so many ``buckets``, those of a block of 2^``block`` numbers
    together; of each day one of ``parts`` messages for comparing clocks."""
    yield _receivers(batch)
    yield _reach(batch)
    yield from stretches(batch)
    yield _heard(batch)
    yield _beats(batch)
    yield _refused(batch)
    yield _nameless(batch)
    yield _samples(batch, parts)
    yield from _parts(batch, buckets, block)


def _receivers(batch: Batch) -> pa.RecordBatch:
    """From when to when each receiver has rows of a segment, and how many."""
    groups = grouped(batch.origin, batch.date, batch.segment.codes)
    new = batch.tracked & batch.verdict.among(NEW)
    return task_records.make_records(
        "receiver",
        from_us=groups.reduce(np.minimum, batch.ts),
        to_us=groups.reduce(np.maximum, batch.ts),
        new=groups.reduce(np.add, new.astype(np.int64)),
        rows=groups.sizes(),
        **batch.labels(groups.heads),
    )


def _reach(batch: Batch) -> pa.RecordBatch:
    """Which sources each receiver has heard, and on which segment."""
    rows = np.flatnonzero(batch.tracked)
    groups = grouped(batch.origin, batch.date, batch.segment.codes, batch.src.codes, among=rows)
    return task_records.make_records("reach", **batch.labels(groups.heads))


def _heard(batch: Batch) -> pa.RecordBatch:
    """From when to when a receiver heard a source without a longer pause than QUIET, and how many messages."""
    source = (batch.origin, batch.src.codes, batch.date)
    rows = sorted_by(*source, among=np.flatnonzero(batch.arrived & batch.named))
    starts = changes(rows, *source)
    starts[1:] |= np.abs(np.diff(batch.ts[rows])) > QUIET
    groups = Groups(rows, np.flatnonzero(starts))
    return task_records.make_records(
        "heard",
        first=groups.reduce(np.minimum, batch.ts),
        last=groups.reduce(np.maximum, batch.ts),
        once=groups.reduce(np.add, batch.verdict.among(ONCE).astype(np.int64)),
        rows=groups.sizes(),
        **batch.labels(groups.heads),
    )


def _beats(batch: Batch) -> pa.RecordBatch:
    """The heartbeats of sources: numbers, then times."""
    code_of = {f"heartbeat/{name}": code for code, name in enumerate(batch.src.values)}
    beat = batch.chan.map(lambda chan: code_of.get(chan, -2), -2) == batch.src.codes
    rows = np.flatnonzero(beat & batch.named & batch.verdict.among((*ONCE, "looped")))
    groups = grouped(batch.origin, batch.date, batch.src.codes, among=rows)
    data = [_joined(batch.seq_key[group], batch.ts[group]) for group in groups.slices()]
    return task_records.make_records("beats", data=data, **batch.labels(groups.heads))


def _joined(*columns: Numbers) -> bytes:
    """Columns as bytes, one behind the other."""
    return np.concatenate(columns).astype("<i8").tobytes()


def _refused(batch: Batch) -> pa.RecordBatch:
    """What was refused, minute by minute and by what it claims."""
    rows = np.flatnonzero(~batch.verdict.among((*ARRIVED, JOURNAL_GAP)))
    claims = (batch.verdict.codes, batch.peer_ip.codes, batch.src.codes, batch.algo.codes)
    groups = grouped(batch.origin, batch.minute, *claims, among=rows)
    return task_records.make_records(
        "refused",
        minute=batch.minute[groups.heads],
        n=groups.sizes(),
        first=groups.reduce(np.minimum, batch.ts),
        last_us=groups.reduce(np.maximum, batch.ts),
        **batch.labels(groups.heads),
    )


def _nameless(batch: Batch) -> pa.RecordBatch:
    """Messages of senders without a name, distinguished by what is in them and by the minute."""
    columns = {"minute": batch.minute, "len": batch.length, "peer_port": batch.peer_port, "seq_key": batch.seq_key}
    rows = np.flatnonzero(batch.arrived & batch.src.among((NAMELESS,)))
    rows = grouped(*columns.values(), batch.chan.codes, batch.peer_ip.codes, among=rows).heads
    return task_records.make_records(
        "nameless", **{name: values[rows] for name, values in columns.items()}, **batch.labels(rows)
    )


def _samples(batch: Batch, parts: Mapping[str, int]) -> pa.RecordBatch:
    """When a part of the messages came to each receiver: hashes, times, and whether it was its own broadcast."""
    rows = np.flatnonzero(batch.tracked & batch.verdict.among(COMPARED))
    message = mixed(batch.src_hash ^ (batch.seq_key.astype(np.uint64) * GOLDEN))
    dates, index = np.unique(batch.date[rows], return_inverse=True)
    mask = np.array([parts.get(task_records.day_of(date), 1) - 1 for date in dates.tolist()], np.uint64)
    rows = rows[(message[rows] & mask[index]) == 0]
    looped = batch.verdict.among(("looped",))
    groups = grouped(batch.origin, batch.date, among=rows)
    data = [_joined(message[group].view(np.int64), batch.ts[group], looped[group]) for group in groups.slices()]
    return task_records.make_records("sample", data=data, **batch.labels(groups.heads))


def _parts(batch: Batch, buckets: int, block: int) -> Iterator[pa.RecordBatch]:
    """The rows of messages, so divided that all rows with one number of a source are in one bucket."""
    blocks = (batch.seq_key >> block).astype(np.uint64)
    bucket = (mixed(batch.src_hash ^ (blocks * GOLDEN)) % np.uint64(buckets)).astype(np.int64)
    states = {"stale": STALE, "duplicate": COPY}
    state = batch.verdict.map(lambda verdict: states.get(verdict, FRESH), FRESH).astype(np.int8)
    columns = (batch.rec_no, batch.ts, batch.seq_key, batch.length, state)
    for rows in grouped(bucket, batch.origin, among=np.flatnonzero(batch.tracked)).slices():
        names = [_coded(column.codes[rows], column.values) for column in (batch.src, batch.chan)]
        table = pa.RecordBatch.from_arrays([*names, *(pa.array(values[rows]) for values in columns)], names=list(PART))
        first = rows[:1]
        yield task_records.make_records("part", bucket=bucket[first], data=[packed(table)], **batch.labels(first))


def _coded(codes: Numbers, values: list[str]) -> pa.DictionaryArray:
    """Names as codes, with those names alone that occur."""
    used, short = np.unique(codes, return_inverse=True)
    present = used >= 0
    names = [values[code] for code in used[present].tolist()]
    index = pa.array(short - (len(used) - len(names)), pa.int32(), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(index, pa.array(names, pa.string()))


def packed(batch: pa.RecordBatch) -> bytes:
    """Columns as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> pa.Table:
    """The columns in bytes."""
    return pa.ipc.open_stream(data).read_all()
