"""Reads reports of hosts: which numbers they say were sent.

Invariant: a report is read as a daemon reads it (`fleet.report_format`), and whole or not at all: one of another host
than its sender's, or whose numbers cannot be, says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from bccnd.core.formats.tap_record import seq_key
from bccnd.fleet.report_format import BadReport, SentRun, read_report, reporting_host

#: bits of the numbers of which one range is kept: about what a source can use in a second
_STEP: Final = 20
_SENT_LINE: Final = b"\nsent "


class Report(NamedTuple):
    """A report as a receiver recorded it."""

    host: str
    journal_id: str
    rec: int
    us: int
    src: str
    chan: str
    payload: bytes


class SentRange(NamedTuple):
    """Numbers of a source that were sent, by the report in this record."""

    src: str
    first_key: int
    last_key: int
    host: str
    journal_id: str
    rec: int
    us: int


def sent_ranges(reports: Iterable[Report]) -> list[SentRange]:
    """The ranges in reports: of those with the same first number few, so that one that is absurd hides no other."""
    read: dict[tuple[str, str, bytes], tuple[SentRun, ...]] = {}
    best: dict[tuple[str, str, int, int], SentRange] = {}
    for report in reports:
        key = report.src, report.chan, report.payload
        if key not in read:
            read[key] = tuple(_runs(*key))
        for run in read[key]:
            first, last = seq_key(run.first), seq_key(run.next - 1)
            found = SentRange(run.src, first, last, report.host, report.journal_id, report.rec, report.us)
            place = run.src, report.host, first, last >> _STEP
            known = best.get(place)
            if known is None or (found.last_key, -found.us) > (known.last_key, -known.us):
                best[place] = found
    return sorted(best.values())


def _runs(src: str, chan: str, payload: bytes) -> Iterator[SentRun]:
    if _SENT_LINE not in payload:
        return
    try:
        runs = read_report(reporting_host(src.encode(), chan.encode()), payload).sent
    except (BadReport, UnicodeDecodeError):
        return
    if not any(run.next < run.first for run in runs):
        yield from (run for run in runs if run.next > run.first)
