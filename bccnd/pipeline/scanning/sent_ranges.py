"""What reports of hosts say was broadcast: from recorded datagrams to ranges of numbers.

Invariant: a report is read as a daemon reads it (`fleet.report_format`), and whole or not at all: one of another host
than its sender's, or whose numbers cannot be, says nothing. Of a run few ranges are kept: those with the highest last
numbers, one in `_STEP` of them, so that one that is absurd hides no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bccnd.core.formats.tap_record import seq_key
from bccnd.fleet.report_format import CHANNEL, BadReport, SentRun, read_report, reporting_host
from bccnd.pipeline.records.source_runs import SentRange
from bccnd.pipeline.records.task_records import ACCEPTED, DAY, day_of, make_records

#: bits of the numbers of which one range is kept: about what a source can use in a second
_STEP: Final = 20
#: payloads that are remembered: receivers whose files one task reads have got the same reports
_REMEMBERED: Final = 4096
_CHANNEL: Final = CHANNEL.decode("ascii")
_SENT_LINE: Final = b"\nsent "
#: the columns of reports that are read
REPORT: Final = ("ts", "src", "chan", "payload")


def find_reports(table: pa.Table) -> pa.Array:
    """The rows of reports that were accepted."""
    of_channel = _with_names(table["chan"], lambda names: pc.starts_with(names, _CHANNEL))
    # Most files have no reports at all.
    if not pc.any(of_channel).as_py():
        return pa.array([], pa.uint64())
    accepted = _with_names(table["verdict"], lambda names: pc.is_in(names, pa.array(ACCEPTED)))
    return pc.indices_nonzero(pc.and_(of_channel, accepted))


def _with_names(column: pa.ChunkedArray, test: Callable[[pa.Array], pa.Array]) -> pa.ChunkedArray:
    """The rows of a column of names that pass a test, of which there may be few different ones."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    passed = [test(chunk.dictionary.cast(pa.string())).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(passed, pa.bool_())


@lru_cache(_REMEMBERED)
def read_runs(src: str, chan: str, payload: bytes) -> tuple[SentRun, ...]:
    """The runs of a datagram that has numbers of its sender's host; none of one that is not to be believed."""
    if _SENT_LINE not in payload:
        return ()
    try:
        runs = read_report(reporting_host(src.encode(), chan.encode()), payload).sent
    except (BadReport, UnicodeDecodeError):
        return ()
    if any(run.next < run.first for run in runs):
        return ()
    return tuple(run for run in runs if run.next > run.first)


def sent_records(host: str, reports: pa.Table) -> pa.RecordBatch:
    """The records of reports that a host received: ``ts`` in microseconds since 1970, src, chan, payload."""
    best: dict[tuple[Any, ...], tuple[int, int]] = {}
    for ts, src, chan, payload in zip(*(reports[name].to_pylist() for name in REPORT), strict=True):
        for run in read_runs(src, chan, payload) if src and chan and payload else ():
            first, last = seq_key(run.first), seq_key(run.next - 1)
            key = day_of(ts // DAY), run.src, first, last >> _STEP
            # The highest one, and the first report of it.
            best[key] = max(best.get(key, (last, -ts)), (last, -ts))
    ranges = [(*key[:3], last, -ts) for key, (last, ts) in sorted(best.items())]
    days, sources, firsts, lasts, times = zip(*ranges, strict=True) if ranges else ((), (), (), (), ())
    return make_records(
        "sent", day=days, host=[host] * len(days), src=sources, from_ts=times, lo_key=firsts, hi_key=lasts
    )


def merge_ranges(ranges: Iterable[SentRange]) -> list[SentRange]:
    """The ranges of a source, each once, whatever the receivers that recorded it."""
    best: dict[tuple[Any, ...], tuple[int, ...]] = {}
    for sent_range in ranges:
        key = sent_range.day, sent_range.first, sent_range.last >> _STEP
        highest = best.get(key)
        if highest is not None and highest[0] == sent_range.last:
            best[key] = (sent_range.last, max(highest[1], -sent_range.ts), max(highest[2], -sent_range.moment))
        elif highest is None or sent_range.last > highest[0]:
            best[key] = (sent_range.last, -sent_range.ts, -sent_range.moment)
    return [SentRange(key[0], key[1], last, -ts, -moment) for key, (last, ts, moment) in sorted(best.items())]
