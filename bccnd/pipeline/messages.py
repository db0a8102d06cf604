"""Rows of messages -> messages: what arrived of each message, at which receivers, and which of them were listening.

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

from bccnd.pipeline import task_records
from bccnd.pipeline.epoch_assignment import NOWHERE, Placement
from bccnd.pipeline.message_counts import Messages, tallies
from bccnd.pipeline.receivers import Bits, Receivers, set_id
from bccnd.pipeline.row_batch import Groups, Numbers, Origin, changes, grouped
from bccnd.pipeline.scan_records import BLOCK, COPY, FRESH, PART, STALE, unpacked
from bccnd.pipeline.task_records import DAY, MINUTE, day_of

#: less than any number
_LEAST: Final = -(2**63)


@dataclass(frozen=True)
class Context:
    """What is known beside the rows. ``offsets``: by how much the clock of a (day, host) is ahead of the common one;
    ``reached``: the highest number of an epoch (src, epoch) on the days before a day, where other days are not here."""

    placement: Placement
    receivers: Receivers
    offsets: Mapping[tuple[str, str], int]
    days: frozenset[str]
    hosts: tuple[str, ...]
    reached: Mapping[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)

    @cached_property
    def bits(self) -> Bits:
        return Bits(self.hosts)


class _Rows:
    """The rows of a bucket that are of an epoch."""

    def __init__(self, parts: pa.Table, placement: Placement) -> None:
        names = list(zip(parts["host"].to_pylist(), parts["journal_id"].to_pylist(), strict=True))
        self.origins = [Origin(*each) for each in dict.fromkeys(names)]
        places = {origin: place for place, origin in enumerate(self.origins)}
        tables = [unpacked(data) for data in parts["data"].to_pylist()]
        table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        self.origin = np.repeat([places[Origin(*each)] for each in names], [each.num_rows for each in tables])
        self.src_names = table["src"].chunk(0).dictionary.to_pylist()
        self.chan_names = table["chan"].chunk(0).dictionary
        self.src = table["src"].chunk(0).indices.to_numpy()
        self.chan = table["chan"].chunk(0).indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self.rec_no, self.ts, self.seq_key, self.length, self.state = (table[name].to_numpy() for name in PART[2:])
        self.epoch = placement.epochs(
            self.src_names, self.src, self.origins, self.origin, self.rec_no, self.ts, self.seq_key
        )
        there = self.epoch != NOWHERE
        if not there.all():
            for name in ("origin", "src", "chan", "rec_no", "ts", "seq_key", "length", "state", "epoch"):
                setattr(self, name, getattr(self, name)[there])

    def hosts(self, bits: Bits) -> Numbers:
        """The place of each row's host."""
        places: Numbers = np.array([bits.place[origin.host] for origin in self.origins])[self.origin]
        return places

    def moments(self, offsets: Mapping[tuple[str, str], int]) -> Numbers:
        """The time of each row on the common clock."""
        dates = self.ts // DAY
        first = int(dates.min())
        days = [day_of(date) for date in range(first, int(dates.max()) + 1)]
        ahead = np.array([[offsets.get((day, origin.host), 0) for day in days] for origin in self.origins], np.int64)
        found: Numbers = self.ts - ahead[self.origin, dates - first]
        return found


def arrivals(parts: pa.Table, context: Context) -> pa.Table:
    """The records of a bucket's messages (`task_records.KINDS`)."""
    its = _Rows(parts, context.placement)
    if not len(its.epoch):
        return task_records.RECORD.empty_table()
    return pa.Table.from_batches([*_messages(its, context), *_copies(its, context)], task_records.RECORD)


def _messages(its: _Rows, context: Context) -> Iterator[pa.RecordBatch]:
    bits = context.bits
    block = its.seq_key >> BLOCK
    groups = grouped(its.src, _dense(its.epoch), _dense(block), its.seq_key & ((1 << BLOCK) - 1), its.chan)
    src, epoch, key = (groups.first(values) for values in (its.src, its.epoch, its.seq_key))
    first = groups.reduce(np.minimum, its.ts)
    moment = groups.reduce(np.minimum, its.moments(context.offsets))
    mine = bits.single(its.hosts(bits))
    seen = _together(groups, mine)
    late = _together(groups, mine * (its.state == STALE)[:, None].astype(np.uint64))
    if late.any():
        late &= ~_together(groups, mine * (its.state == FRESH)[:, None].astype(np.uint64))
    date = first // DAY
    edge = changes(np.arange(len(key)), src, epoch, groups.first(block))
    gap = _gaps(its, context, src, epoch, key, date, edge)
    audience, listening = _audiences(its.src_names, src, date, moment, context)
    every = Messages(
        bits,
        pa.array(its.src_names, pa.string()),
        its.chan_names,
        src,
        groups.first(its.chan),
        epoch,
        key,
        first,
        date,
        groups.sizes(),
        groups.reduce(np.maximum, its.length),
        gap,
        edge,
        seen,
        (listening & audience) | seen,
        audience | seen,
        late,
    )
    (ids, sets) = _ids([every.seen, every.listening], bits)
    at = np.flatnonzero(edge)
    yield task_records.records(
        "edge",
        day=every.days(at),
        src=every.sources(at),
        chan=every.channels(at),
        epoch=epoch[at],
        block=key[at] >> BLOCK,
        lo_key=key[at],
        hi_key=key[np.append(at[1:], len(key)) - 1],
        minute=every.minute[at],
        listening_set_id=ids[1][at],
    )
    place = np.flatnonzero(np.isin(date, [task_records.date_of(day) for day in context.days]))
    if not len(place):
        return
    wanted = every if len(place) == len(key) else every.some(place)
    ids = [each[place] for each in ids]
    yield from tallies(wanted)
    yield from _described(wanted, ids, sets)


def _described(its: Messages, ids: Sequence[Numbers], sets: Mapping[int, str]) -> Iterator[pa.RecordBatch]:
    """The messages themselves, which sets of receivers there were, and how many messages each of these saw."""
    every = np.arange(len(its.key))
    seen, listening = ids
    yield task_records.records(
        "message",
        day=its.days(every),
        src=its.sources(every),
        chan=its.channels(every),
        epoch=its.epoch,
        seq_key=its.key,
        first=its.first,
        set_id=seen,
        listening_set_id=listening,
        copies=its.copies,
        gap_before=pa.array(its.gap, mask=its.edge),
    )
    cells = grouped(its.date, its.src, its.epoch, seen)
    place = cells.order[cells.starts]
    yield task_records.records(
        "delivered",
        day=its.days(place),
        src=its.sources(place),
        epoch=its.epoch[place],
        set_id=seen[place],
        n=cells.sizes(),
        example_key=cells.reduce(np.minimum, its.key),
    )
    for each in ids:
        cells = grouped(its.date, each)
        place = cells.order[cells.starts]
        numbers = each[place]
        hosts = [sets[number] for number in numbers.tolist()]
        yield task_records.records("set", day=its.days(place), hosts=hosts, set_id=numbers)


def _dense(values: Numbers) -> Numbers:
    """The same values as small numbers, in the same order."""
    if len(values) and values.min() == values.max():
        return np.zeros(len(values), np.int64)
    found: Numbers = np.unique(values, return_inverse=True)[1]
    return found


def _together(groups: Groups, sets: Numbers) -> Numbers:
    """The union of the sets of each group's rows."""
    return np.stack([groups.reduce(np.bitwise_or, sets[:, word]) for word in range(sets.shape[1])], axis=1)


def _gaps(
    its: _Rows, context: Context, src: Numbers, epoch: Numbers, key: Numbers, date: Numbers, edge: Numbers
) -> Numbers:
    """How many numbers no receiver saw directly before each message; of the first one of a block nothing is known."""
    previous = np.empty_like(key)
    previous[0] = key[0]
    previous[1:] = key[:-1]
    if context.reached:
        for one in grouped(src, epoch, date).slices():
            reached = context.reached.get((its.src_names[src[one[0]]], int(epoch[one[0]])), {})
            highest = reached.get(day_of(date[one[0]]), _LEAST)
            higher = one[(key[one] > highest) & (previous[one] < highest)]
            previous[higher] = highest
    gap: Numbers = np.where(edge, 0, np.maximum(key - previous - 1, 0))
    return gap


def _audiences(
    names: list[str], src: Numbers, date: Numbers, moment: Numbers, context: Context
) -> tuple[Numbers, Numbers]:
    """For each message the hosts that can hear its source, and those that were listening when it was sent."""
    bits, receivers = context.bits, context.receivers
    audience = np.zeros((len(src), bits.words), np.uint64)
    listening = np.zeros((len(src), bits.words), np.uint64)
    for some in grouped(date).slices():
        day = day_of(date[some[0]])
        its = receivers.intervals.get(day, [])
        if its:
            starts = np.array([one.start for one in its])
            ends = np.array([one.end for one in its])
            place = np.searchsorted(starts, moment[some], "right") - 1
            inside = (place >= 0) & (moment[some] < ends[place])
            listening[some[inside]] = bits.of([one.hosts for one in its])[place[inside]]
        sources = np.unique(src[some])
        of_source = bits.of([receivers.audience(day, names[code]) for code in sources.tolist()])
        audience[some] = of_source[np.searchsorted(sources, src[some])]
    return audience, listening


def _ids(sets: Sequence[Numbers], bits: Bits) -> tuple[list[Numbers], dict[int, str]]:
    """The number of each set, and the hosts behind each number, one a line."""
    every = np.concatenate(sets)
    groups = grouped(*every.view(np.int64).T)
    names = [bits.names(row) for row in every[groups.order[groups.starts]]]
    numbers = np.array([set_id(each) for each in names], np.int64)
    ids = np.empty(len(every), np.int64)
    ids[groups.order] = np.repeat(numbers, groups.sizes())
    return list(ids.reshape(len(sets), -1)), dict(zip(numbers.tolist(), map("\n".join, names), strict=True))


def _copies(its: _Rows, context: Context) -> Iterator[pa.RecordBatch]:
    """How many copies came to which receiver in which minute."""
    wanted = np.isin(its.ts // DAY, [task_records.date_of(day) for day in context.days])
    place = np.flatnonzero((its.state == COPY) & wanted)
    if not len(place):
        return
    columns = [values[place] for values in (its.src, _dense(its.epoch), its.ts // MINUTE, its.hosts(context.bits))]
    groups = grouped(*columns)
    minute = groups.first(columns[2])
    nothing = np.zeros(len(minute), np.int64)
    yield task_records.records(
        "link",
        day=[day_of(one * MINUTE // DAY) for one in minute.tolist()],
        src=pa.array(its.src_names).take(pa.array(groups.first(columns[0]))),
        host=pa.array(context.bits.hosts).take(pa.array(groups.first(columns[3]))),
        epoch=groups.first(its.epoch[place]),
        minute=minute,
        dup=groups.sizes(),
        **dict.fromkeys(("any_seen", "lost_everywhere", "lost_here", "not_listening", "late"), nothing),
    )
