"""Finds losses that the next number does not show: what is missing behind the last number of a source, and holes of any
length.

A report says that every number of a run up to ``next - 1`` was broadcast. What is still missing of them `horizon`
seconds later is lost, counted once, and late if it arrives after that. What was sent before a source was first heard
here is not a loss here. A hole of a source that no report speaks of is a loss if the source can have sent as much
meanwhile, at the rate at which it goes on.

Invariant: no verdict depends on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from bccnd.core.tracking.capped_dict import CappedDict
from bccnd.core.tracking.explained_holes import is_explained, rate_of_run
from bccnd.core.tracking.sender_counts import SenderCounts

#: numbers that a source can use in a second, and at once: a report of more is not believed
MAX_SEQS_A_SECOND: Final = 2_000_000
#: seconds for which a hole waits for the report that explains it: a few intervals of most senders
HOLE_PATIENCE: Final = 60.0
#: seconds for which a source's rate is measured behind a hole, and again while nothing comes
RATE_SECONDS: Final = 10.0
_MICROSECONDS: Final = 1_000_000
#: sources with holes that wait, holes of one source, and sources whose last numbers were counted as lost
MAX_HOLES: Final = 4096
MAX_HOLES_OF_SOURCE: Final = 16
MAX_CLOSED: Final = 65_536
#: checks that wait for the horizon: a further one replaces the oldest
MAX_DUE: Final = 65_536


class Followed(Protocol):
    """What is needed of a source's tracker."""

    @property
    def src(self) -> bytes: ...
    @property
    def last(self) -> int: ...
    @property
    def heard(self) -> float: ...
    @property
    def epoch(self) -> int: ...
    @property
    def sender(self) -> SenderCounts: ...


S = TypeVar("S", bound=Followed)


class Hole(NamedTuple):
    """Numbers that a source has skipped, from ``low`` to ``high``, at a time."""

    low: int
    high: int
    at: float


class _RatedHole(NamedTuple):
    """Numbers that a source without reports has skipped, up to ``high``, while nothing was received of it for some
    seconds; ``until`` its rate is measured."""

    skipped: int
    high: int
    silence: float
    at: float
    until: float


class Trackers(Protocol[S]):
    """What is needed of the trackers to count all that is missing."""

    @property
    def missing(self) -> int: ...
    @property
    def reported(self) -> ReportedLoss[S]: ...
    def get(self, src: bytes) -> S | None: ...


class _Due(NamedTuple):
    """What is to be counted: all of ``holes``, and what is missing of an epoch up to ``last``."""

    at: float
    src: bytes
    epoch: int
    holes: int
    last: int


class Closed(NamedTuple):
    """What was counted as lost of a source, up to ``until``; ``passed`` is the number up to which it has gone on since:
    what arrived in between was late."""

    passed: int
    until: int


class ReportedLoss(Generic[S]):
    """Losses of tracked sources that reports show. ``lose`` counts messages of a source as lost, ``jumped`` a hole that
    no report explains; ``is_reported`` says whether the sender of a source tells its numbers."""

    def __init__(self, lose: Callable[[S, int], None], jumped: Callable[[], None]) -> None:
        self._lose = lose
        self._jumped = jumped
        self.is_reported: Callable[[bytes], bool] = lambda _src: False
        #: by src
        self.closed: CappedDict[bytes, Closed] = CappedDict(MAX_CLOSED)
        #: by src, the one whose last hole has waited longest at the front
        self._holes: dict[bytes, list[Hole]] = {}
        #: the last hole of each source without reports, the one to be decided first at the front
        self._rated: dict[bytes, _RatedHole] = {}
        self._due: deque[_Due] = deque()

    def closed_up_to(self, source: S) -> int:
        """Return the number up to which all that has not arrived was counted as lost, at least the last one."""
        closed = self.closed.get(source.src)
        return source.last if closed is None else max(source.last, closed.until)

    def _count_late(self, source: S) -> None:
        """Count what has arrived after it was counted as lost, as the next number each time."""
        closed = self.closed.get(source.src)
        if closed is not None:
            passed = min(source.last, closed.until)
            if passed > closed.passed:
                source.sender.late += passed - closed.passed
                self.closed[source.src] = Closed(passed, closed.until)
            if passed == closed.until:
                del self.closed[source.src]

    def close_until(self, source: S, seq: int) -> int:
        """Take a source's step forward to ``seq``, before its tracker does; return how many of the numbers in between
        were not yet counted as lost."""
        self._count_late(source)
        closed = self.closed.get(source.src)
        if closed is None:
            return seq - source.last - 1
        self.closed[source.src] = Closed(min(seq, closed.until), closed.until)
        if seq <= closed.until:
            source.sender.late += 1
        return max(0, seq - 1 - closed.until)

    def skip(self, source: S, seq: int, now: float) -> None:
        """Take a jump of a source to ``seq``, before its tracker does."""
        self._decide(source)
        fresh = self.close_until(source, seq)
        if not fresh:
            return
        if not self.is_reported(source.src):
            self._measure(source, fresh, seq - 1, now)
            return
        holes = self._holes.pop(source.src, [])
        holes.append(Hole(seq - fresh, seq - 1, now))
        self._holes[source.src] = holes
        if len(holes) > MAX_HOLES_OF_SOURCE:
            del holes[0]
            self._jumped()
        if len(self._holes) > MAX_HOLES:
            self._give_up(next(iter(self._holes)))

    def _measure(self, source: S, skipped: int, high: int, now: float) -> None:
        """Measure from now on at which rate a source goes on that no report speaks of."""
        silence = now - source.heard
        if not is_explained(skipped, MAX_SEQS_A_SECOND // _MICROSECONDS, round(silence * _MICROSECONDS)):
            self._jumped()
            return
        self._rated[source.src] = _RatedHole(skipped, high, silence, now, now + RATE_SECONDS)
        if len(self._rated) > MAX_HOLES:
            del self._rated[next(iter(self._rated))]
            self._jumped()

    def _decide(self, source: S) -> None:
        """Decide whether the hole of a source that was measured is a loss, before its numbers jump again."""
        hole = self._rated.pop(source.src, None)
        if hole is None:
            return
        rate = rate_of_run(source.last - hole.high - 1, round((source.heard - hole.at) * _MICROSECONDS))
        if is_explained(hole.skipped, rate, round(hole.silence * _MICROSECONDS)):
            self._lose(source, hole.skipped)
        else:
            self._jumped()

    def report(self, source: S, first: int, following: int, now: float, horizon: float) -> bool:
        """Take what a report says about a source: the first number of its run, and the next one. False if that cannot
        be."""
        self._count_late(source)
        last = following - 1
        if last - source.last > MAX_SEQS_A_SECOND * (1 + max(0.0, now - source.heard)):
            return False
        explained = 0
        waiting = []
        for hole in self._holes.get(source.src, ()):
            if first < hole.low and hole.high <= last:
                explained += hole.high - hole.low + 1
            elif first >= hole.low:  # it is another run: the source began anew, or went on at another number
                self._jumped()
            else:
                waiting.append(hole)
        if waiting:
            self._holes[source.src] = waiting
        else:
            self._holes.pop(source.src, None)
        tail = last if first <= source.last < last and self.closed_up_to(source) < last else 0
        if explained or tail:
            self._due.append(_Due(now + horizon, source.src, source.epoch, explained, tail))
            if len(self._due) > MAX_DUE:
                self._due.popleft()
        return True

    def count_missing(self, get: Callable[[bytes], S | None]) -> int:
        """Count what reports have shown to be missing, and what is not yet lost."""
        missing = 0
        ends: dict[bytes, _Due] = {}
        for due in self._due:
            missing += due.holes
            if due.last and (due.src not in ends or due.last > ends[due.src].last):
                ends[due.src] = due
        for src, due in ends.items():
            source = get(src)
            if source is not None and source.epoch == due.epoch:
                missing += max(0, due.last - self.closed_up_to(source))
        return missing

    def sweep(self, get: Callable[[bytes], S | None], now: float) -> bool:
        """Do one thing that is due; False if there is none."""
        if self._due and self._due[0].at <= now:
            due = self._due.popleft()
            source = get(due.src)
            if source is not None:
                self._count(source, due)
            return True
        if self._holes:
            src = next(iter(self._holes))
            if self._holes[src][-1].at + HOLE_PATIENCE <= now:
                self._give_up(src)
                return True
        if self._rated:
            src, hole = next(iter(self._rated.items()))
            if hole.until <= now:
                self._end_measurement(get(src), src, hole, now)
                return True
        return False

    def _end_measurement(self, source: S | None, src: bytes, hole: _RatedHole, now: float) -> None:
        if source is not None and source.last == hole.high + 1 and now < hole.at + HOLE_PATIENCE:
            del self._rated[src]
            self._rated[src] = hole._replace(until=now + RATE_SECONDS)
        elif source is not None:
            self._decide(source)
        else:
            self._forget_measurement(src)

    def _forget_measurement(self, src: bytes) -> None:
        if self._rated.pop(src, None) is not None:
            self._jumped()

    def _count(self, source: S, due: _Due) -> None:
        lost = due.holes
        closed = self.closed_up_to(source)
        if due.last > closed and due.epoch == source.epoch:
            lost += due.last - closed
            self._count_late(source)
            before = self.closed.get(source.src)
            passed = source.last if before is None else before.passed
            self.closed.put(source.src, Closed(passed, due.last))
        if lost:
            self._lose(source, lost)

    def _give_up(self, src: bytes) -> None:
        for _ in self._holes.pop(src, ()):
            self._jumped()

    def forget(self, src: bytes) -> None:
        """Forget a source that is not tracked any more."""
        self.closed.pop(src, None)
        self._give_up(src)
        self._forget_measurement(src)


def count_missing(sources: Trackers[S]) -> int:
    """Count all messages that may still arrive: those that were skipped, and those that only reports show."""
    return sources.missing + sources.reported.count_missing(sources.get)
