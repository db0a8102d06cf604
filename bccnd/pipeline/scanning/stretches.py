"""Finds stretches: rows of a source at one receiver in which the numbers rise, or stay near to each other.

A stretch is what a task knows of a run of a source (joined_runs.py). It ends where another journal, source or day
begins, where the receiver's own count or the port changes, and where the numbers do not go on. Every step is a mask
over rows that are sorted by journal, source and day: which of them begins a stretch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from bccnd.pipeline.records import task_records
from bccnd.pipeline.records.row_batch import Batch, Groups, Numbers, changes, grouped, sorted_by
from bccnd.pipeline.records.source_runs import SANITY
from bccnd.pipeline.records.task_records import NEW

#: ports of a source at a receiver: one that has more uses a new port for each message, so that ports prove nothing
MAX_PORTS: Final = 64
#: stands for the ports of such a source
ANY_PORT: Final = -1
#: times that rows are searched for late messages to other hosts, of which several may follow each other
_ROUNDS: Final = 64
_NEAR: Final = np.uint64(SANITY)


def stretches(batch: Batch) -> Iterator[pa.RecordBatch]:
    """Yield the stretches of rows that were new to their receivers, and those of the others."""
    rows = sorted_by(batch.origin, batch.src.codes, batch.date, among=np.flatnonzero(batch.tracked))
    is_new = batch.verdict.among(NEW)[rows]
    ports = used_ports(batch, rows)
    new_rows, copies = without_late(batch, rows[is_new]), rows[~is_new]
    yield _records(batch, Groups(new_rows, np.flatnonzero(new_starts(batch, new_rows, ports))), ports, is_new=True)
    yield _records(batch, Groups(copies, np.flatnonzero(copy_starts(batch, copies, ports))), ports, is_new=False)


def used_ports(batch: Batch, rows: Numbers) -> Numbers:
    """Return the port of each row of the batch, ANY_PORT where its source uses too many."""
    pairs = grouped(batch.origin, batch.src.codes, batch.peer_port, among=rows)
    source = np.cumsum(changes(pairs.order, batch.origin, batch.src.codes))
    has_too_many = np.bincount(source[pairs.starts]) > MAX_PORTS
    ports: Numbers = batch.peer_port.copy()
    ports[pairs.order[has_too_many[source]]] = ANY_PORT
    return ports


def source_starts(batch: Batch, rows: Numbers) -> Numbers:
    """Return which rows are the first ones of a journal, source and day."""
    return changes(rows, batch.origin, batch.src.codes, batch.date)


def without_late(batch: Batch, rows: Numbers) -> Numbers:
    """Return the rows without those for other hosts that came behind a higher number: they are no copies, and begin
    nothing."""
    for_others = batch.verdict.among(("not_addressed",))
    for _ in range(_ROUNDS):
        _, down = steps(batch, rows)
        is_late = for_others[rows] & (down < _NEAR) & ~source_starts(batch, rows)
        if not is_late.any():
            break
        rows = rows[~is_late]
    return rows


def steps(batch: Batch, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Return how far the number of each row is above that of the row before it, and how far below, modulo 2^64: numbers
    may be as far apart as that. The first row has no row before it; both are 0."""
    keys = batch.seq_key[rows].astype(np.uint64)
    before = np.append(keys[:1], keys[:-1])
    return keys - before, before - keys


def goes_near(batch: Batch, rows: Numbers) -> Numbers:
    """Return which rows have a number less than SANITY above or below that of the row before."""
    up, down = steps(batch, rows)
    stays_near: Numbers = (up < _NEAR) | (down < _NEAR)
    return stays_near


def rises(batch: Batch, rows: Numbers) -> Numbers:
    """Return which rows have a number above that of the row before, by less than SANITY."""
    up, _ = steps(batch, rows)
    rising: Numbers = (up > 0) & (up < _NEAR)
    return rising


def copy_starts(batch: Batch, rows: Numbers, ports: Numbers) -> Numbers:
    """Return which rows begin a stretch, of rows that are copies or late."""
    starts: Numbers = source_starts(batch, rows) | changes(rows, batch.epoch, ports) | ~goes_near(batch, rows)
    return starts


def new_starts(batch: Batch, rows: Numbers, ports: Numbers) -> Numbers:
    """Return which rows begin a stretch, of rows that were new."""
    # A receiver does not track what it has sent itself, so that copies are among these rows.
    goes_on = np.where(batch.epoch[rows] > 0, rises(batch, rows), goes_near(batch, rows))
    starts: Numbers = source_starts(batch, rows) | changes(rows, batch.epoch, ports) | ~goes_on
    return starts | first_addressed(batch, rows)


def first_addressed(batch: Batch, rows: Numbers) -> Numbers:
    """Return which rows are for this host while all rows before them of their source are for others: whether those have
    come late is known only from what was before."""
    is_addressed = ~batch.verdict.among(("not_addressed",))[rows]
    starts = source_starts(batch, rows)
    addressed_before = np.cumsum(is_addressed) - is_addressed
    addressed_before_source = addressed_before[starts][np.cumsum(starts) - 1]
    first: Numbers = is_addressed & ~starts & (addressed_before == addressed_before_source)
    return first


def _records(batch: Batch, groups: Groups, ports: Numbers, *, is_new: bool) -> pa.RecordBatch:
    """Return a record of each stretch; its rows are a group."""
    first, last = groups.heads, groups.tails
    is_addressed = ~batch.verdict.among(("not_addressed",))
    return task_records.make_records(
        "stretch",
        epoch=batch.epoch[first],
        port=ports[first],
        new=np.full(len(first), int(is_new)),
        addressed=is_addressed[first].astype(np.int64),
        from_rec=batch.rec_no[first],
        to_rec=batch.rec_no[last],
        from_ts=groups.reduce(np.minimum, batch.ts),
        to_ts=groups.reduce(np.maximum, batch.ts),
        lo_key=groups.reduce(np.minimum, batch.seq_key),
        hi_key=groups.reduce(np.maximum, batch.seq_key),
        first_key=batch.seq_key[first],
        last_key=batch.seq_key[last],
        **batch.labels(first),
    )
