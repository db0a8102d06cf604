"""Finds losses that a gap in the window of a tracker cannot show: lost tails, and holes.

A tail is all seqs behind the last one of a source. A report shows it: all seqs of a run up to the next one were
broadcast. The seqs that are still missing ``horizon`` seconds later are *closed*: counted as lost, once, and
late if they arrive after that. Seqs from before a source was first heard are no loss here.

A hole is all seqs that a source has skipped by a jump. It is a loss if a report covers it or, for a source without
reports, if the source can have sent as many during its silence, at its rate afterwards. Else the source has jumped.

Invariant: no verdict depends on it, except on `RecentRestarts`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from fractions import Fraction
from heapq import nlargest
from operator import itemgetter
from typing import Final, NamedTuple

from bccnd.core.tracking.capped_dict import CappedDict
from bccnd.core.tracking.source import Source

#: seqs that a source can use in a second, and at once: a report of more is refused
MAX_SEQS_A_SECOND: Final = 2_000_000
#: seconds for which a hole waits for the report that covers it: a few intervals of most senders
HOLE_PATIENCE: Final = 60.0
#: seconds for which a source's rate is measured behind a hole, and again while nothing arrives
RATE_SECONDS: Final = 10.0
#: a hole is a loss up to so many times the seqs that the source uses at its rate
RATES: Final = 2
#: microseconds that a run lasts at least, for a few messages close to each other are no rate
LEAST: Final = 1_000_000
_MICROSECONDS: Final = 1_000_000
#: sources with holes, holes of one source, closed tails, and claims of reports
MAX_HOLES: Final = 4096
MAX_HOLES_OF_SOURCE: Final = 16
MAX_CLOSED: Final = 65_536
MAX_CLAIMS: Final = 65_536
#: restarts remembered
MAX_RESTARTS: Final = 4096
#: sources with losses; up to twice as many until those with the smallest losses are removed
MAX_LOST_BY_SOURCE: Final = 256


def rate_of_run(seqs: int, duration: int) -> Fraction:
    """Return the seqs a microsecond that a source used in a run. Durations are whole microseconds, so that the answer
    is exact, for the daemon and the pipeline alike."""
    return Fraction(seqs, max(duration, LEAST))


def is_explained(skipped: int, rate: Fraction | int, silence: int) -> bool:
    """Whether a source can have sent the skipped seqs during its silence (microseconds)."""
    return skipped <= RATES * rate * silence


class Hole(NamedTuple):
    """The seqs from ``low`` to ``high``, skipped at a time, after so many seconds of ``silence``."""

    low: int
    high: int
    at: float
    silence: float

    @property
    def size(self) -> int:
        return self.high - self.low + 1


class _Waiting(NamedTuple):
    """The holes of a source that no report has covered yet, and when they are checked."""

    check_at: float
    holes: list[Hole]


class _Claim(NamedTuple):
    """The missing seqs that a report has shown, closed at ``due``: ``skipped`` ones in holes, and the tail of an epoch
    up to ``last``, 0 for none."""

    due: float
    source: Source
    epoch: int
    skipped: int
    last: int


class Closed(NamedTuple):
    """A closed tail: the seqs up to ``until``. Those up to ``reached`` have arrived since, or were skipped again; the
    arrived ones are counted as late."""

    reached: int
    until: int


class ReportedLoss:
    """The holes and tails of tracked sources. ``lose`` counts seqs of a source as lost, ``jumped`` a hole that is no
    loss; ``is_reported`` returns whether the sender of a source sends reports."""

    def __init__(self, lose: Callable[[Source, int], None], jumped: Callable[[], None]) -> None:
        self._lose = lose
        self._jumped = jumped
        self.is_reported: Callable[[bytes], bool] = lambda _src: False
        #: by src
        self.closed: CappedDict[bytes, Closed] = CappedDict(MAX_CLOSED)
        #: the source to be checked first at the front
        self._holes: dict[Source, _Waiting] = {}
        #: the first one due at the front
        self._claims: deque[_Claim] = deque()

    def _closed_until(self, source: Source) -> int:
        """Return the seq up to which all missing ones are closed, or belong to the window: at least the last one."""
        closed = self.closed.get(source.src)
        return source.last if closed is None else max(source.last, closed.until)

    def _count_late(self, source: Source) -> None:
        """Count closed seqs that have arrived in order since."""
        closed = self.closed.get(source.src)
        if closed is not None:
            reached = max(closed.reached, min(source.last, closed.until))
            source.sender.late += reached - closed.reached
            self.closed[source.src] = Closed(reached, closed.until)
            if reached == closed.until:
                del self.closed[source.src]

    def advance(self, source: Source, seq: int) -> int:
        """Take a step of a source to ``seq``, before its tracker does; return how many seqs in between are open."""
        self._count_late(source)
        closed = self.closed.get(source.src)
        if closed is None:
            return seq - source.last - 1
        self.closed[source.src] = Closed(min(seq, closed.until), closed.until)
        if seq <= closed.until:
            source.sender.late += 1
        return max(0, seq - 1 - closed.until)

    def jump(self, source: Source, seq: int, now: float) -> None:
        """Take a jump of a source to ``seq``, before its tracker does."""
        reported = self.is_reported(source.src)
        if not reported:  # the run whose rate is measured ends
            self._decide(source)
        skipped, silence = self.advance(source, seq), now - source.heard
        if not skipped:
            return
        if not reported and skipped > RATES * MAX_SEQS_A_SECOND * silence:
            self._jumped()
            return
        holes = [*self._take_holes(source), Hole(seq - skipped, seq - 1, now, silence)]
        self._holes[source] = _Waiting(now + RATE_SECONDS, holes)
        if len(holes) > MAX_HOLES_OF_SOURCE:
            del holes[0]
            self._jumped()
        if len(self._holes) > MAX_HOLES:
            self._decide(next(iter(self._holes)))

    def _take_holes(self, source: Source) -> list[Hole]:
        waiting = self._holes.pop(source, None)
        return [] if waiting is None else waiting.holes

    def _decide(self, source: Source) -> None:
        """Decide by the rate behind them which holes of a source are losses."""
        reported = self.is_reported(source.src)
        for hole in self._take_holes(source):
            rate = rate_of_run(source.last - hole.high - 1, round((source.heard - hole.at) * _MICROSECONDS))
            if not reported and is_explained(hole.size, rate, round(hole.silence * _MICROSECONDS)):
                self._lose(source, hole.size)
            else:
                self._jumped()

    def report(self, source: Source, first: int, following: int, now: float, horizon: float) -> bool:
        """Take a report on a source: the first seq of its run, and the next one. False if that cannot be."""
        self._count_late(source)
        last = following - 1
        if last - source.last > MAX_SEQS_A_SECOND * (1 + max(0.0, now - source.heard)):
            return False
        skipped = self._cover_holes(source, first, last) if source in self._holes else 0
        tail = last if first <= source.last and self._closed_until(source) < last else 0
        if skipped or tail:
            self._claims.append(_Claim(now + horizon, source, source.epoch, skipped, tail))
            if len(self._claims) > MAX_CLAIMS:
                self._close(self._claims.popleft())
        return True

    def _cover_holes(self, source: Source, first: int, last: int) -> int:
        """Remove the holes that a run covers, or that are no holes of it; return the size of the former."""
        skipped = 0
        holes = self._holes[source].holes
        for hole in holes[:]:
            if first < hole.low and hole.high <= last:
                skipped += hole.size
            elif first >= hole.low:  # another run: the source began anew, or went on at another seq
                self._jumped()
            else:
                continue
            holes.remove(hole)
        if not holes:
            del self._holes[source]
        return skipped

    def _close(self, claim: _Claim) -> None:
        """Count as lost the seqs of a claim that are still missing."""
        source = claim.source
        if not source.tracked:
            return
        lost, closed_until = claim.skipped, self._closed_until(source)
        if claim.last > closed_until and claim.epoch == source.epoch:
            lost += claim.last - closed_until
            self._count_late(source)
            self.closed.put(source.src, Closed(source.last, claim.last))
        if lost:
            self._lose(source, lost)

    def count_missing(self) -> int:
        """Count the seqs that reports have shown to be missing, and that are not closed yet."""
        missing = 0
        ends: dict[Source, int] = {}
        for _, source, epoch, skipped, last in self._claims:
            if source.tracked:
                missing += skipped
                if epoch == source.epoch:
                    ends[source] = max(last, ends.get(source, 0))
        return missing + sum(max(0, last - self._closed_until(source)) for source, last in ends.items())

    def sweep(self, now: float) -> bool:
        """Close one claim or check the holes of one source; False if nothing is due."""
        if self._claims and self._claims[0].due <= now:
            self._close(self._claims.popleft())
            return True
        for source, (check_at, holes) in self._holes.items():
            if check_at > now:
                break
            silent = source.last == holes[-1].high + 1
            if now < holes[-1].at + HOLE_PATIENCE and (silent or self.is_reported(source.src)):
                del self._holes[source]
                self._holes[source] = _Waiting(now + RATE_SECONDS, holes)
            else:
                self._decide(source)
            return True
        return False

    def forget(self, source: Source) -> None:
        """Forget a source that restarts, or will not be tracked any more."""
        self.closed.pop(source.src, None)
        self._decide(source)


class LossBySource:
    """Messages lost, by src; those of sources that have lost least are forgotten."""

    def __init__(self) -> None:
        self.by_src: dict[bytes, int] = {}

    def add(self, src: bytes, gone: int) -> None:
        lost = self.by_src
        lost[src] = lost.get(src, 0) + gone
        if len(lost) > 2 * MAX_LOST_BY_SOURCE:
            self.by_src = dict(nlargest(MAX_LOST_BY_SOURCE, lost.items(), key=itemgetter(1)))


class Restart(NamedTuple):
    """When a source has restarted, and its last seq before."""

    when: float
    last: int


class RecentRestarts(CappedDict[bytes, Restart]):
    """The last restart of each source, by src, the oldest first, for as long as links may bring copies from before."""

    def predates(self, src: bytes, seq: int, since: float) -> bool:
        """Whether a seq may be from before the last restart, if that was not before a time."""
        restart = self.get(src)
        return restart is not None and seq <= restart.last and restart.when >= since

    def sweep(self, since: float) -> bool:
        """Forget the oldest restart if it was before a time; False if there is none."""
        for src, restart in self.items():
            if restart.when < since:
                del self[src]
                return True
            break
        return False
