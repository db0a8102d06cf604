"""Messages -> counts: what the tables of loss, delivery and traffic are summed up from.

A cell (a minute of a source, a minute of a channel) may be in several buckets, so these are parts of sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from bccnd.pipeline import task_records
from bccnd.pipeline.receivers import Bits
from bccnd.pipeline.row_batch import Groups, Numbers, grouped
from bccnd.pipeline.scan_records import BLOCK
from bccnd.pipeline.task_records import MINUTE, day_of


@dataclass(frozen=True)
class Messages:
    """Messages, sorted by source, epoch and number. ``src`` and ``chan`` are places in the names; the sets of hosts are
    rows of `Bits`; ``gap`` counts the numbers directly before a message that no receiver saw, 0 for the first one of a
    block (``edge``), of which that is not known here."""

    bits: Bits
    src_names: pa.Array
    chan_names: pa.Array
    src: Numbers
    chan: Numbers
    epoch: Numbers
    key: Numbers
    first: Numbers
    date: Numbers
    copies: Numbers
    length: Numbers
    gap: Numbers
    edge: Numbers
    seen: Numbers
    listening: Numbers
    audience: Numbers
    late: Numbers

    @property
    def minute(self) -> Numbers:
        return self.first // MINUTE

    def some(self, place: Numbers) -> Messages:
        """Only these messages."""
        fixed = ("bits", "src_names", "chan_names")
        return replace(
            self, **{one.name: getattr(self, one.name)[place] for one in fields(self) if one.name not in fixed}
        )

    def days(self, place: Numbers) -> list[str]:
        """The days of these messages."""
        return [self._days[date] for date in self.date[place].tolist()]

    @cached_property
    def _days(self) -> dict[int, str]:
        return {date: day_of(date) for date in np.unique(self.date).tolist()}

    def sources(self, place: Numbers) -> pa.Array:
        return self.src_names.take(pa.array(self.src[place]))

    def channels(self, place: Numbers) -> pa.Array:
        return self.chan_names.take(pa.array(self.chan[place], mask=self.chan[place] < 0))


def tallies(its: Messages) -> Iterator[pa.RecordBatch]:
    """All counts."""
    by_source = grouped(its.date, its.src, its.epoch, its.minute)
    by_channel = grouped(its.date, its.chan, its.minute)
    for number, host in enumerate(its.bits.hosts):
        bits = _Host(its, number)
        if not bits.able.any():
            continue
        yield _losses("link", its, bits, by_source, host)
        yield _losses("channel", its, bits, by_channel, host)
        yield _missed(its, np.flatnonzero(bits.listened & ~bits.saw), host)
    yield _unseen(its, np.flatnonzero(its.gap > 0))
    yield _epochs(its)
    yield _lengths(its)


class _Host:
    """What a host has to do with each message."""

    def __init__(self, its: Messages, number: int) -> None:
        self.saw, self.listened, self.able, self.late = (
            (each[:, number // 64] >> np.uint64(number % 64)) & np.uint64(1) != 0
            for each in (its.seen, its.listening, its.audience, its.late)
        )


def _losses(kind: str, its: Messages, host: _Host, cells: Groups, name: str) -> pa.RecordBatch:
    """What a host saw and lost in each cell."""

    def count(values: Numbers) -> Numbers:
        return cells.reduce(np.add, values.astype(np.int64))

    any_seen = count(host.able)
    there = np.flatnonzero(any_seen)
    place = cells.order[cells.starts[there]]
    found: dict[str, Any] = {
        "day": its.days(place),
        "host": pa.repeat(pa.scalar(name), len(there)),
        "minute": its.minute[place],
        "any_seen": any_seen[there],
        "lost_everywhere": count(its.gap * host.listened)[there],
        "lost_here": count(host.listened & ~host.saw)[there],
        "not_listening": count(host.able & ~host.listened)[there],
    }
    if kind == "channel":
        return task_records.records(kind, chan=its.channels(place), **found)
    return task_records.records(
        kind,
        src=its.sources(place),
        epoch=its.epoch[place],
        late=count(host.late)[there],
        dup=np.zeros(len(there), np.int64),
        **found,
    )


def _missed(its: Messages, place: Numbers, host: str) -> pa.RecordBatch:
    """The numbers that a host missed, as ranges; those at the end of a block may go on in another bucket."""
    starts = np.ones(len(place), bool)
    key = its.key[place]
    starts[1:] = key[1:] - key[:-1] > 1
    for values in (its.src, its.epoch, its.date, its.key >> BLOCK):
        starts[1:] |= values[place[1:]] != values[place[:-1]]
    at = np.flatnonzero(starts)
    low, high = key[at], key[np.append(at[1:], len(place))[: len(at)] - 1]
    return _ranges(its, place[at], low, high, pa.repeat(pa.scalar(host), len(at)))


def _unseen(its: Messages, place: Numbers) -> pa.RecordBatch:
    """The numbers that no receiver saw, as ranges."""
    low, high = its.key[place] - its.gap[place], its.key[place] - 1
    return _ranges(its, place, low, high, pa.nulls(len(place), pa.string()))


def _ranges(its: Messages, place: Numbers, low: Numbers, high: Numbers, hosts: pa.Array) -> pa.RecordBatch:
    within = (1 << BLOCK) - 1
    return task_records.records(
        "missed",
        day=its.days(place),
        src=its.sources(place),
        host=hosts,
        epoch=its.epoch[place],
        lo_key=low,
        hi_key=high,
        at_edge=((low & within == 0) | (high & within == within)).astype(np.int64),
    )


def _epochs(its: Messages) -> pa.RecordBatch:
    """From when to when, and from which number to which, each epoch was heard, and at which hosts."""
    cells = grouped(its.date, its.src, its.epoch)
    place = cells.order[cells.starts]
    seen = np.stack([cells.reduce(np.bitwise_or, its.seen[:, word]) for word in range(its.bits.words)], axis=1)
    return task_records.records(
        "epoch",
        day=its.days(place),
        src=its.sources(place),
        hosts=["\n".join(its.bits.names(row)) for row in seen],
        epoch=its.epoch[place],
        from_ts=cells.reduce(np.minimum, its.first),
        to_ts=cells.reduce(np.maximum, its.first),
        lo_key=cells.reduce(np.minimum, its.key),
        hi_key=cells.reduce(np.maximum, its.key),
    )


def _lengths(its: Messages) -> pa.RecordBatch:
    """How many messages of each length there were."""
    cells = grouped(its.date, its.minute, its.src, its.chan, its.length)
    place = cells.order[cells.starts]
    return task_records.records(
        "lengths",
        day=its.days(place),
        src=its.sources(place),
        chan=its.channels(place),
        minute=its.minute[place],
        len=its.length[place],
        n=cells.sizes(),
    )
