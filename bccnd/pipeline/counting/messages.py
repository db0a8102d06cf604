"""Combines rows into messages: what arrived of each, at which receivers, and which of these were listening.

A message is a source's number on a channel, within an epoch. It was seen by every receiver at which any datagram of it
arrived, be it as a copy, too late, or for another host. It belongs to the day and minute of its first arrival, by the
clock of the receiver that has the smallest time, wrong clocks put right (clocks.py). A bucket has all rows of its
numbers, so messages are whole; only which number comes before the first one of a block is known elsewhere (`edge`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from bccnd.pipeline.alignment.epoch_assignment import NOWHERE, EpochAssignment
from bccnd.pipeline.counting.message_counts import Messages, count_messages
from bccnd.pipeline.hosts.receiving_hosts import Bits, Receivers, set_id
from bccnd.pipeline.records.row_batch import Groups, Numbers, Origin, changes, day_names, grouped
from bccnd.pipeline.records.source_runs import Tail
from bccnd.pipeline.records.task_records import DAY, MINUTE, RECORD, date_of, day_of, make_records
from bccnd.pipeline.scanning.scan_records import COPY, FRESH, PART, STALE, unpacked

#: less than any number
_LEAST: Final = -(2**63)


@dataclass(frozen=True)
class Context:
    """What is known beside the rows. ``offsets``: by how much the clock of a (day, host) is ahead of the common one;
    2^``block`` numbers of a source are in one bucket; ``reached``: the highest number of an epoch (src, epoch) on the
    days before a day, where other days are not here, or reports told of more; ``tails``: by source."""

    assignment: EpochAssignment
    receivers: Receivers
    offsets: Mapping[tuple[str, str], int]
    days: frozenset[str]
    hosts: tuple[str, ...]
    block: int
    reached: Mapping[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)
    tails: Mapping[str, Sequence[Tail]] = field(default_factory=dict)

    @cached_property
    def bits(self) -> Bits:
        return Bits(self.hosts)


class _Rows:
    """The rows of a bucket that are of an epoch."""

    def __init__(self, parts: pa.Table, assignment: EpochAssignment) -> None:
        origins = list(map(Origin, parts["host"].to_pylist(), parts["journal_id"].to_pylist()))
        self.origins = list(dict.fromkeys(origins))
        tables = [unpacked(data) for data in parts["data"].to_pylist()]
        table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        src, chan = table["src"].chunk(0), table["chan"].chunk(0)
        indexes = {origin: index for index, origin in enumerate(self.origins)}
        self.origin = np.repeat([indexes[origin] for origin in origins], [table.num_rows for table in tables])
        self.src_names = src.dictionary.to_pylist()
        self.chan_names = chan.dictionary
        self.src = src.indices.to_numpy()
        self.chan = chan.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self.rec_no, self.ts, self.seq_key, self.length, self.state = (table[name].to_numpy() for name in PART[2:])
        self.epoch = assignment.epochs(
            self.src_names, self.src, self.origins, self.origin, self.rec_no, self.ts, self.seq_key
        )
        placed = self.epoch != NOWHERE
        if not placed.all():
            for name in ("origin", "src", "chan", "rec_no", "ts", "seq_key", "length", "state", "epoch"):
                setattr(self, name, getattr(self, name)[placed])

    def hosts(self, bits: Bits) -> Numbers:
        """The index of each row's host."""
        indexes: Numbers = np.array([bits.index[origin.host] for origin in self.origins])[self.origin]
        return indexes

    def moments(self, offsets: Mapping[tuple[str, str], int]) -> Numbers:
        """The time of each row on the common clock."""
        dates = self.ts // DAY
        first = int(dates.min())
        days = [day_of(date) for date in range(first, int(dates.max()) + 1)]
        ahead = np.array([[offsets.get((day, origin.host), 0) for day in days] for origin in self.origins], np.int64)
        moments: Numbers = self.ts - ahead[self.origin, dates - first]
        return moments


def message_records(parts: pa.Table, context: Context) -> pa.Table:
    """The records of a bucket's messages (`task_records.KINDS`)."""
    rows = _Rows(parts, context.assignment)
    if not len(rows.epoch):
        return RECORD.empty_table()
    dates = np.array([date_of(day) for day in context.days])
    messages = _messages(rows, context)
    ids, sets = _set_ids([messages.seen, messages.listening], messages.bits)
    batches = [_edges(messages, ids[1]), _floors(messages, context.tails)]
    wanted = np.flatnonzero(np.isin(messages.date, dates))
    if len(wanted):
        messages, ids = messages.only(wanted), [set_ids[wanted] for set_ids in ids]
        batches += count_messages(messages)
        batches += _described(messages, ids, sets)
    batches.append(_copies(rows, context.bits, np.isin(rows.ts // DAY, dates)))
    return pa.Table.from_batches(batches, RECORD)


def _messages(rows: _Rows, context: Context) -> Messages:
    bits = context.bits
    block = rows.seq_key >> context.block
    within = rows.seq_key & ((1 << context.block) - 1)
    groups = grouped(rows.src, _dense(rows.epoch), _dense(block), within, rows.chan)
    heads = groups.heads
    src, epoch, key = rows.src[heads], rows.epoch[heads], rows.seq_key[heads]
    first = groups.reduce(np.minimum, rows.ts)
    host = bits.single(rows.hosts(bits))
    seen = groups.union(host)
    late = groups.union(host * (rows.state == STALE)[:, None].astype(np.uint64))
    if late.any():
        late &= ~groups.union(host * (rows.state == FRESH)[:, None].astype(np.uint64))
    edge = changes(heads, rows.src, rows.epoch, block)
    moment = groups.reduce(np.minimum, rows.moments(context.offsets))
    audience, listening = _audiences(rows.src_names, src, first // DAY, moment, context)
    return Messages(
        bits=bits,
        block=context.block,
        src_names=pa.array(rows.src_names, pa.string()),
        chan_names=rows.chan_names,
        src=src,
        chan=rows.chan[heads],
        epoch=epoch,
        key=key,
        first=first,
        copies=groups.sizes(),
        length=groups.reduce(np.maximum, rows.length),
        gap=_gaps(rows, context, src, epoch, key, first // DAY, edge),
        edge=edge,
        seen=seen,
        listening=(listening & audience) | seen,
        audience=audience | seen,
        late=late,
    )


def _edges(messages: Messages, listening: Numbers) -> pa.RecordBatch:
    """The blocks of numbers; ``listening`` are the ids of sets."""
    groups = Groups(np.arange(len(messages.key)), np.flatnonzero(messages.edge))
    low = messages.key[groups.heads]
    return make_records(
        "edge",
        block=low >> messages.block,
        lo_key=low,
        hi_key=messages.key[groups.tails],
        listening_set_id=listening[groups.heads],
        **messages.labels(groups.heads),
    )


def _floors(messages: Messages, tails: Mapping[str, Sequence[Tail]]) -> pa.RecordBatch:
    """The highest number up to the end of each tail, of those that are here."""
    floors = []
    for code, src in enumerate(messages.src_names.to_pylist() if tails else ()):
        for tail in tails.get(src, ()):
            low, high = np.searchsorted(messages.src, (code, code + 1))
            first, last = np.searchsorted(messages.epoch[low:high], (tail.epoch, tail.epoch + 1)) + low
            place = first + np.searchsorted(messages.key[first:last], tail.key, "right") - 1
            if place >= first:
                floors.append((src, tail.epoch, tail.key, int(messages.key[place])))
    columns = zip(*floors, strict=True) if floors else ((),) * 4
    return make_records("floor", **dict(zip(("src", "epoch", "tail", "key"), columns, strict=True)))


def _described(messages: Messages, ids: Sequence[Numbers], sets: Mapping[int, str]) -> Iterator[pa.RecordBatch]:
    """The messages themselves, which sets of receivers there were, and how many messages each of these saw."""
    seen, listening = ids
    yield make_records(
        "message",
        seq_key=messages.key,
        first=messages.first,
        set_id=seen,
        listening_set_id=listening,
        copies=messages.copies,
        gap_before=pa.array(messages.gap, mask=messages.edge),
        **messages.labels(np.arange(len(messages.key))),
    )
    groups = grouped(messages.date, messages.src, messages.epoch, seen)
    yield make_records(
        "delivered",
        set_id=seen[groups.heads],
        n=groups.sizes(),
        example_key=groups.reduce(np.minimum, messages.key),
        **messages.labels(groups.heads),
    )
    for set_ids in ids:
        heads = grouped(messages.date, set_ids).heads
        hosts = [sets[number] for number in set_ids[heads].tolist()]
        yield make_records("set", hosts=hosts, set_id=set_ids[heads], **messages.labels(heads))


def _dense(values: Numbers) -> Numbers:
    """The same values as small numbers, in the same order."""
    if len(values) and values.min() == values.max():
        return np.zeros(len(values), np.int64)
    dense: Numbers = np.unique(values, return_inverse=True)[1]
    return dense


def _gaps(
    rows: _Rows, context: Context, src: Numbers, epoch: Numbers, key: Numbers, date: Numbers, edge: Numbers
) -> Numbers:
    """How many numbers no receiver saw directly before each message; of the first one of a block nothing is known."""
    previous = np.append(key[:1], key[:-1])
    if context.reached:
        for group in grouped(src, epoch, date).slices():
            head = group[0]
            reached = context.reached.get((rows.src_names[src[head]], int(epoch[head])), {})
            highest = reached.get(day_of(date[head]), _LEAST)
            previous[group[(key[group] > highest) & (previous[group] < highest)]] = highest
    gap: Numbers = np.where(edge, 0, np.maximum(key - previous - 1, 0))
    return gap


def _audiences(
    names: list[str], src: Numbers, date: Numbers, moment: Numbers, context: Context
) -> tuple[Numbers, Numbers]:
    """For each message the hosts that can hear its source, and those that were listening when it was sent."""
    bits, receivers = context.bits, context.receivers
    audience = np.zeros((len(src), bits.words), np.uint64)
    listening = np.zeros((len(src), bits.words), np.uint64)
    for of_day in grouped(date).slices():
        day = day_of(date[of_day[0]])
        intervals = receivers.intervals.get(day, [])
        if intervals:
            starts = np.array([interval.start for interval in intervals])
            ends = np.array([interval.end for interval in intervals])
            index = np.searchsorted(starts, moment[of_day], "right") - 1
            inside = (index >= 0) & (moment[of_day] < ends[index])
            listening[of_day[inside]] = bits.of([interval.hosts for interval in intervals])[index[inside]]
        sources, index = np.unique(src[of_day], return_inverse=True)
        can_hear = [receivers.audience(day, names[code]) for code in sources.tolist()]
        audience[of_day] = bits.of(can_hear)[index]
    return audience, listening


def _set_ids(sets: Sequence[Numbers], bits: Bits) -> tuple[list[Numbers], dict[int, str]]:
    """The number of each set, and the hosts behind each number, one a line."""
    all_sets = np.concatenate(sets)
    groups = grouped(*all_sets.view(np.int64).T)
    names = [bits.names(row) for row in all_sets[groups.heads]]
    numbers = np.array([set_id(hosts) for hosts in names], np.int64)
    ids = np.empty(len(all_sets), np.int64)
    ids[groups.order] = np.repeat(numbers, groups.sizes())
    return list(ids.reshape(len(sets), -1)), dict(zip(numbers.tolist(), map("\n".join, names), strict=True))


def _copies(rows: _Rows, bits: Bits, wanted: Numbers) -> pa.RecordBatch:
    """How many copies came to which receiver in which minute, of the ``wanted`` rows."""
    minute, host = rows.ts // MINUTE, rows.hosts(bits)
    copies = np.flatnonzero((rows.state == COPY) & wanted)
    groups = grouped(rows.src, _dense(rows.epoch), minute, host, among=copies)
    heads = groups.heads
    nothing = np.zeros(len(heads), np.int64)
    return make_records(
        "link",
        day=day_names(rows.ts[heads] // DAY),
        src=[rows.src_names[code] for code in rows.src[heads].tolist()],
        host=[bits.hosts[index] for index in host[heads].tolist()],
        epoch=rows.epoch[heads],
        minute=minute[heads],
        dup=groups.sizes(),
        **dict.fromkeys(("any_seen", "lost_everywhere", "lost_here", "not_listening", "late"), nothing),
    )
