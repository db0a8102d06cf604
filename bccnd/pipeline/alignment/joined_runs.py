"""Joins stretches of rows into runs: rows of one source at one receiver in which the numbers only rise.

Invariant: the runs of a day follow from the rows of that day alone, and not from how these were cut into files: a run
that ends where a stretch was cut goes on with the next one.

Two things begin a run though the receiver's own count (`epoch`) does not change: numbers of messages that were new
went back (the daemon had taken the source for dead and forgotten it), or copies came from a new port while the old one
is never used again (a source that begins anew within two seconds is taken for a copy of itself).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from bccnd.pipeline.records.source_runs import ENDLESS, SANITY, Run, went_back
from bccnd.pipeline.scanning.stretches import ANY_PORT, MAX_PORTS

#: less than any number, also than that of seq 0
_LEAST: Final = -ENDLESS - 2


class Stretch(NamedTuple):
    """Rows of one source at one receiver on one day, all from one port and of one count of the receiver.

    ``new``: the rows were new to the receiver, and numbers rise by less than SANITY; else copies are among them, and
    numbers differ by less than SANITY from row to row. ``addressed``: the first row was for this host.
    """

    day: str
    host: str
    journal_id: str
    epoch: int
    port: int
    new: int
    addressed: int
    from_rec: int
    to_rec: int
    from_ts: int
    to_ts: int
    lo_key: int
    hi_key: int
    first_key: int
    last_key: int

    @property
    def journal(self) -> tuple[str, str, str]:
        """The day and the journal that it is of."""
        return self.day, self.host, self.journal_id

    def run(self, *, loose: bool = False, masked: bool = False) -> Run:
        """The stretch as a run of its own."""
        return Run._make((*_of_run(self), loose or self.epoch == 0, masked, 0, 0))

    def behind(self, key: int) -> Stretch | None:
        """What the stretch has behind a number, as if it began there; None if that is nothing."""
        if self.last_key <= key:
            return None
        return self._replace(first_key=key + 1, lo_key=key + 1)


#: the fields that a stretch and a run have in common, in the order of a run's
_of_run = attrgetter(*(name for name in Run._fields if name in Stretch._fields))


def runs(stretches: Iterable[Stretch]) -> list[Run]:
    """The runs of one source."""
    joined: list[Run] = []
    ordered = sorted(stretches, key=lambda stretch: (*stretch.journal, stretch.from_rec, stretch.to_rec))
    for _, group in groupby(ordered, key=lambda stretch: stretch.journal):
        of_journal = list(group)
        if any(stretch.new for stretch in of_journal):
            joined += _joined(_parts(of_journal))
        else:
            joined += _joined(stretch.run(loose=True) for stretch in of_journal)
    return joined


def _joined(parts: Iterable[Run]) -> Iterator[Run]:
    """Runs put together where numbers go on."""
    run: Run | None = None
    for part in parts:
        if (
            run is None
            or part.masked
            or run.epoch != part.epoch
            or went_back(run, part)
            or part.lo_key - run.hi_key >= SANITY
        ):
            if run is not None:
                yield run
            run = part
        else:
            run = run._replace(
                to_rec=max(run.to_rec, part.to_rec),
                from_ts=min(run.from_ts, part.from_ts),
                to_ts=max(run.to_ts, part.to_ts),
                lo_key=min(run.lo_key, part.lo_key),
                hi_key=max(run.hi_key, part.hi_key),
                last_key=max(run.last_key, part.last_key) if run.loose else part.last_key,
            )
    if run is not None:
        yield run


class _PortUse:
    """In which records of a journal each port of a source was used; nothing if ports prove nothing."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        ports = {stretch.port for stretch in stretches}
        if ANY_PORT in ports or len(ports) > MAX_PORTS:
            return
        for stretch in stretches:
            self._first[stretch.port] = min(stretch.from_rec, self._first.get(stretch.port, ENDLESS))
            self._last[stretch.port] = max(stretch.to_rec, self._last.get(stretch.port, -1))

    def is_replaced(self, port: int, by: Stretch) -> bool:
        """Whether a stretch is the first from its port, and behind all that came from another one."""
        is_first = self._first.get(by.port) == by.from_rec
        return is_first and by.port != port and self._last.get(port, ENDLESS) < by.from_rec


@dataclass
class _Count:
    """What is known of a source while its receiver counts one epoch. ``swallows``: the source has begun anew, and the
    receiver takes its messages for copies."""

    epoch: int = -1
    port: int = ANY_PORT
    last_key: int = _LEAST
    swallows: bool = False

    def take_new(self, stretch: Stretch) -> Run | None:
        """The part of a run that messages make which were new; None if they are late, and for other hosts."""
        went_on = stretch.epoch == self.epoch
        masked = went_on and stretch.first_key <= self.last_key
        if masked and not stretch.addressed and self.last_key - stretch.first_key < SANITY:
            # What is behind the late ones goes on.
            masked, rest = False, stretch.behind(self.last_key)
            if rest is None:
                return None
            stretch = rest
        if masked or not went_on:
            self.swallows = False
        self.epoch, self.port, self.last_key = stretch.epoch, stretch.port, stretch.last_key
        return stretch.run(masked=masked)

    def take_copies(self, stretch: Stretch, high: int, ports: _PortUse) -> Run | None:
        """The part of a run that messages up to ``high`` make which the receiver took for copies; None if they are."""
        begins = stretch.first_key < self.last_key and ports.is_replaced(self.port, stretch)
        if not begins and not self.swallows:
            return None
        low = stretch.first_key if begins else max(stretch.first_key, self.last_key + 1)
        if high < low:
            return None
        self.port, self.last_key, self.swallows = stretch.port, high, True
        return stretch.run(masked=begins)._replace(lo_key=low, hi_key=high, first_key=low, last_key=high)


def _parts(stretches: Sequence[Stretch]) -> Iterator[Run]:
    """The parts of runs in a receiver's journal, those `masked` that begin a run though the receiver counted on."""
    ports = _PortUse(stretches)
    count = _Count()
    for number, stretch in enumerate(stretches):
        part = None
        if stretch.epoch == 0:
            # A receiver does not count what it has sent itself.
            part = stretch.run() if stretch.new else None
        elif stretch.new:
            part = count.take_new(stretch)
        elif stretch.epoch == count.epoch:
            part = count.take_copies(stretch, _reached(stretches, number), ports)
        if part is not None:
            yield part


def _reached(stretches: Sequence[Stretch], number: int) -> int:
    """The highest number of the copies in a stretch that came before messages were new again."""
    copies = stretches[number]
    for index in range(number + 1, len(stretches)):
        following = stretches[index]
        if following.from_rec > copies.to_rec:
            break
        if following.new and following.epoch == copies.epoch:
            return min(copies.hi_key, following.first_key - 1)
    return copies.hi_key
