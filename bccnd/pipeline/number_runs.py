"""Joins stretches of rows into runs: rows of one source at one receiver in which the numbers only rise.

Invariant: the runs of a day follow from the rows of that day alone, and not from how these were cut into files: a run
that ends where a stretch was cut goes on with the next one.

Two things begin a run though the receiver's own count (`epoch`) does not change: numbers of messages that were new
went back (the daemon had taken the source for dead and forgotten it), or copies came from a new port while the old one
is never used again (a source that begins anew within two seconds is taken for a copy of itself).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from bccnd.pipeline.epoch_alignment import ENDLESS, SANITY, Run, went_back
from bccnd.pipeline.scan_records import ANY_PORT, MAX_PORTS

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

    def run(self, *, loose: bool = False, masked: bool = False) -> Run:
        """The stretch as a run of its own."""
        return Run(*self[:4], *self[7:], loose=loose or self.epoch == 0, masked=masked)


def runs(stretches: Iterable[Stretch]) -> list[Run]:
    """The runs of one source."""
    found: list[Run] = []
    for _, each in groupby(sorted(stretches, key=_place), key=lambda one: one[:3]):
        some = list(each)
        if any(one.new for one in some):
            found += _joined(_begun(some))
        else:
            found += _joined(one.run(loose=True) for one in some)
    return found


def _place(one: Stretch) -> tuple[str, str, str, int, int]:
    return (*one[:3], one.from_rec, one.to_rec)


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


def _begun(stretches: Sequence[Stretch]) -> Iterator[Run]:
    """The parts of runs in a receiver's journal, those `masked` that begin a run though the receiver counted on."""
    ports = {one.port for one in stretches}
    by_port = ANY_PORT not in ports and len(ports) <= MAX_PORTS
    since: dict[int, int] = {}
    until: dict[int, int] = {}
    for one in stretches if by_port else ():
        since[one.port] = min(one.from_rec, since.get(one.port, one.from_rec))
        until[one.port] = max(one.to_rec, until.get(one.port, one.to_rec))
    epoch, port, last_key, swallowed = -1, ANY_PORT, _LEAST, False
    for number, one in enumerate(stretches):
        if one.epoch == 0:
            if one.new:
                yield one.run()
        elif one.new:
            masked = False
            if one.epoch != epoch:
                swallowed = False
            elif one.first_key <= last_key:
                if not one.addressed and last_key - one.first_key < SANITY:
                    # Meant for others, and late: what is behind it goes on.
                    if one.last_key <= last_key:
                        continue
                    one = one._replace(first_key=last_key + 1, lo_key=last_key + 1)
                else:
                    masked, swallowed = True, False
            epoch, port, last_key = one.epoch, one.port, one.last_key
            yield one.run(masked=masked)
        elif one.epoch == epoch:
            begins = (
                by_port
                and one.port != port
                and until.get(port, ENDLESS) < one.from_rec == since[one.port]
                and one.first_key < last_key
            )
            if begins or (swallowed and one.hi_key > last_key):
                high = _reached(stretches, number)
                low = one.first_key if begins else max(one.first_key, last_key + 1)
                if high < low:
                    continue
                swallowed = True
                port, last_key = one.port, high
                part = one.run(masked=begins)
                yield part._replace(lo_key=low, hi_key=high, first_key=low, last_key=high)


def _reached(stretches: Sequence[Stretch], number: int) -> int:
    """The highest number of the copies in a stretch that came before messages were new again."""
    one = stretches[number]
    for index in range(number + 1, len(stretches)):
        other = stretches[index]
        if other.from_rec > one.to_rec:
            break
        if other.new and other.epoch == one.epoch:
            return min(one.hi_key, other.first_key - 1)
    return one.hi_key
