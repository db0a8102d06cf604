"""What the scan emits of a batch of rows, kind by kind (`task_records.KINDS`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bccnd.core.tap_record import JOURNAL_GAP
from bccnd.pipeline import task_records
from bccnd.pipeline.epoch_alignment import SANITY
from bccnd.pipeline.row_batch import GOLDEN, Batch, Numbers, changes, grouped, mixed, sorted_by
from bccnd.pipeline.task_records import ARRIVED, COMPARED, MINUTE, NAMELESS, NEW, ONCE, day_of

#: numbers of a source that stay together in one bucket, as bits
BLOCK: Final = 16
#: microseconds: silences that are not longer are none, and messages closer to each other are one stretch
QUIET: Final = 5_000_000
#: ports of a source at a receiver: one that has more uses a new port for each message, so that ports prove nothing
MAX_PORTS: Final = 64
#: stands for the ports of such a source
ANY_PORT: Final = -1
#: times that rows are gone through for messages to others that came late one behind the other
_ROUNDS: Final = 64
#: how the rows of a part and of a sample are laid out
PART: Final = ("src", "chan", "rec_no", "ts", "seq_key", "len", "state")
#: what became of a row: a copy, late, or neither
FRESH, STALE, COPY = 0, 1, 2


def records(batch: Batch, buckets: int, parts: int) -> Iterator[pa.RecordBatch]:
    """All that is emitted of a batch: messages in so many ``buckets``, one of ``parts`` for comparing clocks."""
    days = {date: day_of(date) for date in np.unique(batch.date).tolist()}
    yield _receivers(batch, days)
    yield _reach(batch, days)
    yield from stretches(batch, days)
    yield _heard(batch, days)
    yield _beats(batch, days)
    yield _refused(batch, days)
    yield _nameless(batch, days)
    yield _samples(batch, days, parts)
    yield from _parts(batch, buckets)


def _days(dates: Numbers, days: dict[int, str]) -> pa.Array:
    return pa.array([days[date] for date in dates.tolist()], pa.string())


def _hosts(batch: Batch, origin: Numbers) -> pa.Array:
    return pa.array([batch.origins[one].host for one in origin.tolist()], pa.string())


def _journals(batch: Batch, origin: Numbers) -> pa.Array:
    return pa.array([batch.origins[one].journal_id for one in origin.tolist()], pa.string())


def _receivers(batch: Batch, days: dict[int, str]) -> pa.RecordBatch:
    """From when to when each receiver has rows of a segment, and how many."""
    groups = grouped(batch.origin, batch.date, batch.segment.codes)
    new = batch.tracked & batch.verdict.among(NEW)
    origin = groups.first(batch.origin)
    return task_records.records(
        "receiver",
        day=_days(groups.first(batch.date), days),
        host=_hosts(batch, origin),
        journal_id=_journals(batch, origin),
        segment=batch.segment.take(groups.first(batch.segment.codes)),
        from_us=groups.reduce(np.minimum, batch.ts),
        to_us=groups.reduce(np.maximum, batch.ts),
        new=groups.reduce(np.add, new.astype(np.int64)),
        rows=groups.sizes(),
    )


def _reach(batch: Batch, days: dict[int, str]) -> pa.RecordBatch:
    """Which sources each receiver has heard, and on which segment."""
    place = np.flatnonzero(batch.tracked)
    columns = [values[place] for values in (batch.origin, batch.date, batch.segment.codes, batch.src.codes)]
    if not len(place):
        return task_records.records("reach", day=[], src=[], host=[], segment=[])
    groups = grouped(*columns)
    origin, date, segment, src = (groups.first(column) for column in columns)
    return task_records.records(
        "reach",
        day=_days(date, days),
        src=batch.src.take(src),
        host=_hosts(batch, origin),
        segment=batch.segment.take(segment),
    )


def stretches(batch: Batch, days: dict[int, str]) -> Iterator[pa.RecordBatch]:
    """Rows of a source in which numbers rise, or stay near to each other where copies are among them."""
    place = np.flatnonzero(batch.tracked)
    if not len(place):
        return
    place = place[sorted_by(batch.origin[place], batch.src.codes[place], batch.date[place])]
    new = batch.verdict.among(NEW)[place]
    elsewhere = batch.verdict.among(("not_addressed",))[place]
    ports = _ports(batch, place)
    found = [_rising(batch, place[new], ports[new], elsewhere[new], new=True)]
    found.append(_rising(batch, place[~new], ports[~new], elsewhere[~new], new=False))
    for columns in found:
        origin, src, date = (columns.pop(name) for name in ("origin", "src", "date"))
        yield task_records.records(
            "stretch",
            day=_days(date, days),
            host=_hosts(batch, origin),
            journal_id=_journals(batch, origin),
            src=batch.src.take(src),
            **columns,
        )


def _ports(batch: Batch, place: Numbers) -> Numbers:
    """The port of each row, ANY_PORT where its source uses too many."""
    ports = batch.peer_port[place]
    pairs = grouped(batch.origin[place], batch.src.codes[place], ports)
    origin, src = batch.origin[place][pairs.order], batch.src.codes[place][pairs.order]
    first = changes(np.arange(len(place)), origin, src)
    each = np.cumsum(first) - 1
    is_port = np.zeros(len(place), np.int64)
    is_port[pairs.starts] = 1
    many = np.bincount(each, weights=is_port) > MAX_PORTS
    if many.any():
        ports = ports.copy()
        ports[pairs.order[many[each]]] = ANY_PORT
    return ports


def _rising(batch: Batch, place: Numbers, ports: Numbers, elsewhere: Numbers, *, new: bool) -> dict[str, Any]:
    """Stretches of rows that are sorted by journal, source and day; of those that were ``new``, or of the others."""
    own = changes(np.arange(len(place)), batch.origin[place], batch.src.codes[place], batch.date[place])
    keys = batch.seq_key[place].astype(np.uint64)  # differences of numbers may be as large as 64 bits
    if new:
        # What was meant for other hosts may come late without being a copy: it begins nothing.
        for _ in range(_ROUNDS):
            back = np.zeros(len(place), bool)
            back[1:] = ~own[1:] & elsewhere[1:] & (keys[:-1] - keys[1:] < np.uint64(SANITY))
            if not back.any():
                break
            place, ports, elsewhere, own, keys = (each[~back] for each in (place, ports, elsewhere, own, keys))
    starts = own | changes(np.arange(len(place)), batch.epoch[place], ports)
    up, down = keys[1:] - keys[:-1], keys[:-1] - keys[1:]
    near = (up < np.uint64(SANITY)) | (down < np.uint64(SANITY))
    if new:
        tracked = batch.epoch[place][1:] > 0  # a receiver does not track what it has sent itself
        near = np.where(tracked, (up > 0) & (up < np.uint64(SANITY)), near)
        # Whether those that come first have come late is known only from what was before.
        addressed = np.cumsum(~elsewhere)
        before = (addressed - ~elsewhere)[own][np.cumsum(own) - 1]
        leading = addressed == before
        starts[1:] |= leading[:-1] & ~elsewhere[1:]
    starts[1:] |= ~near
    at = np.flatnonzero(starts)
    last = np.append(at[1:], len(place))[: len(at)] - 1

    def reduced(how: np.ufunc, values: Numbers) -> Numbers:
        found: Numbers = how.reduceat(values[place], at) if len(at) else values[:0]
        return found

    return {
        "origin": batch.origin[place[at]],
        "src": batch.src.codes[place[at]],
        "date": batch.date[place[at]],
        "epoch": batch.epoch[place[at]],
        "port": ports[at],
        "new": np.full(len(at), int(new)),
        "addressed": (~elsewhere[at]).astype(np.int64),
        "from_rec": batch.rec_no[place[at]],
        "to_rec": batch.rec_no[place[last]],
        "from_ts": reduced(np.minimum, batch.ts),
        "to_ts": reduced(np.maximum, batch.ts),
        "lo_key": reduced(np.minimum, batch.seq_key),
        "hi_key": reduced(np.maximum, batch.seq_key),
        "first_key": batch.seq_key[place[at]],
        "last_key": batch.seq_key[place[last]],
    }


def _heard(batch: Batch, days: dict[int, str]) -> pa.RecordBatch:
    """From when to when a receiver heard a source without a longer pause than QUIET, and how many messages."""
    place = np.flatnonzero(batch.arrived & batch.named)
    place = place[sorted_by(batch.origin[place], batch.src.codes[place], batch.date[place])]
    starts = changes(place, batch.origin, batch.src.codes, batch.date)
    ts = batch.ts[place]
    starts[1:] |= np.abs(np.diff(ts)) > QUIET
    at = np.flatnonzero(starts)
    once = batch.verdict.among(ONCE)[place].astype(np.int64)
    origin = batch.origin[place[at]]
    return task_records.records(
        "heard",
        day=_days(batch.date[place[at]], days),
        host=_hosts(batch, origin),
        src=batch.src.take(batch.src.codes[place[at]]),
        first=np.minimum.reduceat(ts, at) if len(at) else ts,
        last=np.maximum.reduceat(ts, at) if len(at) else ts,
        once=np.add.reduceat(once, at) if len(at) else once,
        rows=np.diff(np.append(at, len(place))),
    )


def _beats(batch: Batch, days: dict[int, str]) -> pa.RecordBatch:
    """The heartbeats of sources: numbers, then times."""
    sources = {name: code for code, name in enumerate(batch.src.values)}
    prefix = "heartbeat/"
    of = batch.chan.each(lambda chan: sources.get(chan.removeprefix(prefix), -2) if chan.startswith(prefix) else -2, -2)
    beat = (of[batch.chan.codes] == batch.src.codes) & batch.named & batch.verdict.among((*ONCE, "looped"))
    place = np.flatnonzero(beat)
    if not len(place):
        return task_records.records("beats", day=[], host=[], src=[], data=[])
    columns = [values[place] for values in (batch.origin, batch.date, batch.src.codes)]
    groups = grouped(*columns)
    origin, date, src = (groups.first(column) for column in columns)
    data = [
        np.concatenate([batch.seq_key[place[one]], batch.ts[place[one]]]).astype("<i8").tobytes()
        for one in groups.slices()
    ]
    return task_records.records(
        "beats", day=_days(date, days), host=_hosts(batch, origin), src=batch.src.take(src), data=data
    )


def _refused(batch: Batch, days: dict[int, str]) -> pa.RecordBatch:
    """What was refused, minute by minute and by what it claims."""
    place = np.flatnonzero(~batch.verdict.among((*ARRIVED, JOURNAL_GAP)))
    table = pa.table(
        {
            "host": _hosts(batch, batch.origin[place]),
            "date": batch.date[place],
            "minute": batch.ts[place] // MINUTE,
            **{
                name: column.take(column.codes[place])
                for name, column in (
                    ("verdict", batch.verdict),
                    ("peer_ip", batch.peer_ip),
                    ("claimed_src", batch.src),
                    ("algo", batch.algo),
                )
            },
            "ts": batch.ts[place],
        }
    )
    keys = ["host", "date", "minute", "verdict", "peer_ip", "claimed_src", "algo"]
    found = table.group_by(keys).aggregate([("ts", "count"), ("ts", "min"), ("ts", "max")])
    return task_records.records(
        "refused",
        day=_days(found["date"].to_numpy(), days),
        n=found["ts_count"],
        first=found["ts_min"],
        last_us=found["ts_max"],
        **{name: found[name] for name in ("host", "peer_ip", "claimed_src", "algo", "verdict", "minute")},
    )


def _nameless(batch: Batch, days: dict[int, str]) -> pa.RecordBatch:
    """Messages of senders that do not know their name, distinguished by what is in them and by the minute."""
    place = np.flatnonzero(batch.arrived & batch.src.among((NAMELESS,)))
    table = pa.table(
        {
            "date": batch.date[place],
            "minute": batch.ts[place] // MINUTE,
            "chan": batch.chan.take(batch.chan.codes[place]),
            "peer_ip": batch.peer_ip.take(batch.peer_ip.codes[place]),
            "len": batch.length[place],
            "peer_port": batch.peer_port[place],
            "seq_key": batch.seq_key[place],
        }
    )
    found = table.group_by(table.column_names).aggregate([])
    names = [name for name in found.column_names if name != "date"]
    return task_records.records(
        "nameless", day=_days(found["date"].to_numpy(), days), **{name: found[name] for name in names}
    )


def _samples(batch: Batch, days: dict[int, str], parts: int) -> pa.RecordBatch:
    """When a part of the messages came to each receiver: hashes, times, and whether it was its own broadcast."""
    place = np.flatnonzero(batch.tracked & batch.verdict.among(COMPARED))
    message = mixed(batch.src_hash[batch.src.codes[place]] ^ (batch.seq_key[place].astype(np.uint64) * GOLDEN))
    taken = (message & np.uint64(parts - 1)) == 0
    place, message = place[taken], message[taken]
    if not len(place):
        return task_records.records("sample", day=[], host=[], data=[])
    looped = batch.verdict.among(("looped",))[place].astype(np.int64)
    origin, date = batch.origin[place], batch.date[place]
    groups = grouped(origin, date)
    data = [
        np.concatenate([message[one].view(np.int64), batch.ts[place[one]], looped[one]]).astype("<i8").tobytes()
        for one in groups.slices()
    ]
    return task_records.records(
        "sample", day=_days(groups.first(date), days), host=_hosts(batch, groups.first(origin)), data=data
    )


def _parts(batch: Batch, buckets: int) -> Iterator[pa.RecordBatch]:
    """The rows of messages, so divided that all rows with one number of a source are in one bucket."""
    place = np.flatnonzero(batch.tracked)
    if not len(place):
        return
    blocks = (batch.seq_key[place] >> BLOCK).astype(np.uint64)
    bucket = (mixed(batch.src_hash[batch.src.codes[place]] ^ (blocks * GOLDEN)) % np.uint64(buckets)).astype(np.int64)
    state = batch.verdict.each(lambda verdict: {"stale": STALE, "duplicate": COPY}.get(verdict, FRESH), FRESH)
    states = state[batch.verdict.codes].astype(np.int8)
    groups = grouped(bucket, batch.origin[place])
    for each in groups.slices():
        some = place[each]
        table = pa.RecordBatch.from_arrays(
            [
                _coded(batch.src.codes[some], batch.src.values),
                _coded(batch.chan.codes[some], batch.chan.values),
                *(pa.array(values[some]) for values in (batch.rec_no, batch.ts, batch.seq_key, batch.length, states)),
            ],
            names=list(PART),
        )
        origin = batch.origins[batch.origin[some[0]]]
        yield task_records.records(
            "part",
            bucket=bucket[each[:1]],
            host=[origin.host],
            journal_id=[origin.journal_id],
            data=[packed(table)],
        )


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
