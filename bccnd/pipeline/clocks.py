"""Corrects the times of hosts whose clocks are wrong.

Invariant: of the hosts that receive from the same sources on a day the middle clock is right (of two middle ones the
slower one). A session whose clock is off by half a minute or more has its rows moved by whole minutes, before anything
else is made of them; so one wrong clock moves no message of the others to another minute or day. What is smaller stays
as the host recorded it.

A day here is the one that rows carry by the host's own clock. Where a session has no message on a day that another host
received as well, its clock is that of the days beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median_low
from typing import Final, NamedTuple

from bccnd.journal.file_names import DAY, day_of, start_of

MINUTE: Final = 60_000_000


class Compared(NamedTuple):
    """How far the clock of a session, or of all sessions of a host (``journal_id`` empty), was ahead of that of
    ``ref_host`` on a day, in microseconds."""

    day: str
    host: str
    journal_id: str
    start_us: int
    ref_host: str
    p05_us: int
    p50_us: int
    p95_us: int
    n: int


class Clock(NamedTuple):
    """By how much rows have to be moved back, in whole minutes, and how far the clock is ahead after that."""

    shift: int
    ahead: int


#: a session: host, journal, start
SessionKey = tuple[str, str, int]
RIGHT: Final = Clock(0, 0)


class Clocks:
    """The clocks of sessions by day, from what was compared on all days known."""

    def __init__(self, compared: Iterable[Compared]) -> None:
        self._sessions: dict[tuple[SessionKey, str], Clock] = {}
        self._hosts: dict[tuple[str, str], Clock] = {}
        rows = list(compared)
        middles: dict[tuple[str, str], list[int]] = {}
        for row in rows:
            if not row.journal_id:
                middles.setdefault((row.day, row.ref_host), [0]).append(row.p50_us)
        middle = {group: median_low(values) for group, values in middles.items()}
        for (day, ref_host), ahead in middle.items():
            self._hosts[ref_host, day] = _clock(-ahead)
        for row in rows:
            clock = _clock(row.p50_us - middle.get((row.day, row.ref_host), 0))
            if row.journal_id:
                self._sessions[(row.host, row.journal_id, row.start_us), row.day] = clock
            else:
                self._hosts[row.host, row.day] = clock

    def of(self, session: SessionKey, day: str) -> Clock:
        """The clock of a session for rows of a day."""
        for each in (day, *beside(day)):
            clock = self._sessions.get((session, each)) or self._hosts.get((session[0], each))
            if clock is not None and (each == day or clock.shift):
                return clock
        return RIGHT


def _clock(ahead: int) -> Clock:
    shift = (ahead + MINUTE // 2) // MINUTE * MINUTE
    return Clock(shift, ahead - shift)


def beside(day: str) -> tuple[str, str]:
    """The day before and the day after."""
    start = start_of(day)
    return day_of(start - DAY), day_of(start + DAY)


def references(rows: Mapping[str, int], together: Iterable[Iterable[str]]) -> dict[str, str]:
    """The reference of each host, from the new rows of each and the sets of hosts that received the same message: the
    host with most rows of those that are so connected, of several the first by name."""
    group = {host: host for host in rows}

    def top(host: str) -> str:
        while group[host] != host:
            group[host] = host = group[group[host]]
        return host

    for hosts in together:
        first, *rest = hosts
        for host in rest:
            group[top(host)] = top(first)
    best: dict[str, str] = {}
    for host in sorted(rows, key=lambda host: (-rows[host], host)):
        best.setdefault(top(host), host)
    return {host: best[top(host)] for host in rows}
