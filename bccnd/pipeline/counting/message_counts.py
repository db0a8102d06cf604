"""Counts messages: what the tables of loss, delivery and traffic are summed up from.

A minute of a source or of a channel may be in several buckets, so these are parts of sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from bccnd.pipeline.hosts.receiving_hosts import Bits
from bccnd.pipeline.records.row_batch import Groups, Numbers, changes, day_names, grouped
from bccnd.pipeline.records.task_records import DAY, MINUTE, make_records


@dataclass(frozen=True)
class Messages:
    """Messages, sorted by source, epoch and number. ``src`` and ``chan`` are indexes of the names; sets of hosts are
    rows of `Bits`; ``gap`` counts the numbers directly before a message that no receiver saw, 0 for the first one of a
    block (2^``block`` numbers; ``edge``), of which that is not known here."""

    bits: Bits
    block: int
    src_names: pa.Array
    chan_names: pa.Array
    src: Numbers
    chan: Numbers
    epoch: Numbers
    key: Numbers
    first: Numbers
    copies: Numbers
    length: Numbers
    gap: Numbers
    edge: Numbers
    seen: Numbers
    listening: Numbers
    audience: Numbers
    late: Numbers

    @cached_property
    def date(self) -> Numbers:
        return self.first // DAY

    @cached_property
    def minute(self) -> Numbers:
        return self.first // MINUTE

    def only(self, rows: Numbers) -> Messages:
        """Only these messages."""
        chosen = {column.name: getattr(self, column.name)[rows] for column in fields(self)[4:]}
        return replace(self, **chosen)

    def labels(self, rows: Numbers) -> dict[str, Any]:
        """The day, the minute, the source and the channel of these messages, as fields of records."""
        chan = self.chan[rows]
        return {
            "day": day_names(self.date[rows]),
            "minute": self.minute[rows],
            "src": self.src_names.take(pa.array(self.src[rows])),
            "chan": self.chan_names.take(pa.array(chan, mask=chan < 0)),
            "epoch": self.epoch[rows],
        }


def count_messages(messages: Messages) -> Iterator[pa.RecordBatch]:
    """All counts."""
    by_source = grouped(messages.date, messages.src, messages.epoch, messages.minute)
    by_channel = grouped(messages.date, messages.chan, messages.minute)
    for number, host in enumerate(messages.bits.hosts):
        saw, listened, able, late = (
            (sets[:, number // 64] >> np.uint64(number % 64)) & np.uint64(1) != 0
            for sets in (messages.seen, messages.listening, messages.audience, messages.late)
        )
        if not able.any():
            continue
        missed = listened & ~saw
        counted = {
            "any_seen": able,
            "lost_everywhere": messages.gap * listened,
            "lost_here": missed,
            "not_listening": able & ~listened,
            "late": late,
            "dup": np.zeros(len(able)),
        }
        for kind, groups in (("link", by_source), ("channel", by_channel)):
            sums = {name: groups.reduce(np.add, values.astype(np.int64)) for name, values in counted.items()}
            heard = np.flatnonzero(sums["any_seen"])
            sums = {name: values[heard] for name, values in sums.items()}
            hosts = pa.repeat(pa.scalar(host), len(heard))
            yield make_records(kind, host=hosts, **sums, **messages.labels(groups.heads[heard]))
        yield _missed(messages, np.flatnonzero(missed), host)
    yield _unseen(messages)
    yield _epochs(messages)
    yield _lengths(messages)


def _missed(messages: Messages, rows: Numbers, host: str) -> pa.RecordBatch:
    """The numbers that a host missed, as ranges; those at the end of a block may go on in another bucket."""
    starts = changes(rows, messages.src, messages.epoch, messages.date, messages.key >> messages.block)
    starts[1:] |= np.diff(messages.key[rows]) > 1
    groups = Groups(rows, np.flatnonzero(starts))
    low, high = messages.key[groups.heads], messages.key[groups.tails]
    return _ranges(messages, groups.heads, low, high, pa.repeat(pa.scalar(host), len(low)))


def _unseen(messages: Messages) -> pa.RecordBatch:
    """The numbers that no receiver saw, as ranges."""
    rows = np.flatnonzero(messages.gap)
    low, high = messages.key[rows] - messages.gap[rows], messages.key[rows] - 1
    return _ranges(messages, rows, low, high, pa.nulls(len(rows), pa.string()))


def _ranges(messages: Messages, rows: Numbers, low: Numbers, high: Numbers, hosts: pa.Array) -> pa.RecordBatch:
    within = (1 << messages.block) - 1
    at_edge = ((low & within == 0) | (high & within == within)).astype(np.int64)
    return make_records("missed", host=hosts, lo_key=low, hi_key=high, at_edge=at_edge, **messages.labels(rows))


def _epochs(messages: Messages) -> pa.RecordBatch:
    """From when to when, and from which number to which, each epoch was heard, and at which hosts."""
    groups = grouped(messages.date, messages.src, messages.epoch)
    return make_records(
        "epoch",
        hosts=["\n".join(messages.bits.names(row)) for row in groups.union(messages.seen)],
        from_ts=groups.reduce(np.minimum, messages.first),
        to_ts=groups.reduce(np.maximum, messages.first),
        lo_key=groups.reduce(np.minimum, messages.key),
        hi_key=groups.reduce(np.maximum, messages.key),
        **messages.labels(groups.heads),
    )


def _lengths(messages: Messages) -> pa.RecordBatch:
    """How many messages of each length there were."""
    groups = grouped(messages.date, messages.minute, messages.src, messages.chan, messages.length)
    lengths = messages.length[groups.heads]
    return make_records("lengths", len=lengths, n=groups.sizes(), **messages.labels(groups.heads))
