"""Decides which epochs a source has, from blocks of its numbers that never went back, and from what reports say.

An era is the time between two restarts. A hole of `SANITY` within an era is a jump, and so a new epoch, unless it is a
loss: receivers were recording for so long that the source can have sent these numbers at its rate, which is that of its
fastest block; or a report says that all of them were sent, and receivers were recording all the while. The last number
of a report counts as sent if it is no jump.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Final, NamedTuple

from bccnd.core.tracking.losses import LEAST, MAX_SEQS_A_SECOND, is_explained, rate_of_run
from bccnd.core.tracking.tracker_limits import SANITY
from bccnd.pipeline.restarts import GUARD, Restart

#: epochs of a source on a day, at most: above this, its numbers have no order
MOST: Final = 1000
FIRST: Final = "first"
RESTART: Final = "restart"
MASKED: Final = "masked"
JUMP: Final = "jump"
UNORDERED: Final = "unordered"
_SECOND: Final = 1_000_000

Spans = Sequence[tuple[int, int]]


class SeqBlock(NamedTuple):
    """Numbers of an era without a hole of `SANITY`, from when to when on the common clock (microseconds)."""

    era: int
    low: int
    high: int
    start_us: int
    end_us: int


class Sent(NamedTuple):
    """Numbers, from the first to the last, that a report says were sent: received first at ``us``, by the receiver's
    corrected clock, which is ``moment`` on the common one."""

    first: int
    last: int
    us: int
    moment: int


class Carried(NamedTuple):
    """The last epoch of a source on the days before."""

    epoch: int
    cause: str
    last_us: int
    last_key: int
    pace: int
    pace_us: int


class Epoch(NamedTuple):
    """Numbers of an era from ``low`` on are of the epoch that began in the second ``epoch`` (unix time), or in the next
    one that was free."""

    era: int
    low: int
    epoch: int
    cause: str
    pace: int
    pace_us: int


class Reported(NamedTuple):
    """The last number that a report says was sent in an epoch: a tail if nothing behind it was received."""

    epoch: int
    key: int
    us: int
    moment: int


def find_epochs(
    blocks: Sequence[SeqBlock],
    restarts: Sequence[Restart],
    sent: Sequence[Sent],
    carried: Carried | None,
    recorded: Spans,
) -> tuple[list[Epoch], list[Reported]]:
    """The epochs of one source, from its blocks in the order of eras and numbers, and what reports say was ``sent``.
    ``recorded`` has the times in which any receiver was recording, in order and apart from each other."""
    begins = [restart.before - GUARD for restart in restarts]
    reports: dict[int, list[Sent]] = {}
    for report in sent:
        reports.setdefault(bisect_right(begins, report.moment), []).append(report)
    carried_era = -1 if carried is None else bisect_right(begins, carried.last_us)
    epochs: list[Epoch] = []
    reported: list[Reported] = []
    last = -1
    for era, of_era in groupby(blocks, key=attrgetter("era")):
        divided = _Divided(list(of_era), reports.get(era, ()), recorded, carried if era == carried_era else None)
        cause = FIRST if era == 0 else RESTART if restarts[era - 1].noticed else MASKED
        for index, (low, start_us) in enumerate(divided.begins):
            if carried is not None and index == divided.carried_index:
                last, known = carried.epoch, carried.cause
            else:
                start = restarts[era - 1].before if era and not index else start_us
                last, known = max(start // _SECOND, last + 1), JUMP if index else cause
            if len(epochs) < MOST:
                epochs.append(Epoch(era, low, last, known, *divided.pace))
            else:
                epochs[-1] = epochs[-1]._replace(cause=UNORDERED)
            if (end := divided.reported.get(index)) is not None:
                reported.append(Reported(epochs[-1].epoch, end.last, end.us, end.moment))
    return epochs, reported


class _Divided:
    """An era divided by its jumps: ``begins`` has the lowest number of each epoch and its time, ``reported`` the report
    that goes farthest in each (by index), ``carried_index`` the one that goes on from the days before."""

    def __init__(
        self, blocks: Sequence[SeqBlock], sent: Sequence[Sent], recorded: Spans, carried: Carried | None
    ) -> None:
        fastest = max(blocks, key=lambda block: rate_of_run(block.high - block.low, block.end_us - block.start_us))
        self.pace = fastest.high - fastest.low, max(fastest.end_us - fastest.start_us, LEAST)
        if carried is not None and Fraction(carried.pace, carried.pace_us) > Fraction(*self.pace):
            self.pace = carried.pace, carried.pace_us
        self.begins: list[tuple[int, int]] = []
        self.reported: dict[int, Sent] = {}
        self.carried_index = -1
        self._rate = Fraction(*self.pace)
        self._recorded = recorded
        believed = sorted(_believed(blocks, sent))
        self._firsts = [report.first for report in believed]
        self._reach = list(accumulate((report.last for report in believed), max))
        self._divide(blocks, believed, carried)

    def _divide(self, blocks: Sequence[SeqBlock], believed: Sequence[Sent], carried: Carried | None) -> None:
        items: list[tuple[int, int, SeqBlock | Sent]] = [(block.low, 0, block) for block in blocks]
        items += [(report.last, 1, report) for report in believed]
        high, end_us = -(2**64), 0
        for key, _, item in sorted(items):
            if isinstance(item, Sent):
                if key <= high or self._is_loss(high, end_us, key, item.moment):
                    best = self.reported.setdefault(len(self.begins) - 1, item)
                    if (key, -item.us) > (best.last, -best.us):
                        self.reported[len(self.begins) - 1] = item
                    high = max(high, key)
                continue
            if not self.begins or not self._is_loss(high, end_us, key, item.start_us):
                self.begins.append((key, item.start_us))
            if carried is not None and key <= carried.last_key <= item.high:
                self.carried_index = len(self.begins) - 1
            if item.high > high:
                high, end_us = item.high, item.end_us

    def _is_loss(self, high: int, end_us: int, low: int, moment: int) -> bool:
        """Whether the numbers between the highest one so far and ``low``, received at a moment, are a loss."""
        if low - high < SANITY:
            return True
        meanwhile = overlap(self._recorded, end_us, moment)
        if is_explained(low - high - 1, self._rate, meanwhile):
            return True
        place = bisect_right(self._firsts, high)
        return meanwhile >= moment - end_us and place > 0 and self._reach[place - 1] >= low - 1


def _believed(blocks: Sequence[SeqBlock], sent: Iterable[Sent]) -> Iterator[Sent]:
    """Yield the ranges of which a number was received, and whose last number can have been reached since."""
    lows = [block.low for block in blocks]
    for report in sent:
        place = bisect_right(lows, report.last) - 1
        if place < 0 or blocks[place].high < report.first:
            continue
        silence = max(report.moment - blocks[place].end_us, 0)
        if (report.last - blocks[place].high) * _SECOND <= MAX_SEQS_A_SECOND * (_SECOND + silence):
            yield report


def overlap(spans: Spans, start: int, end: int) -> int:
    """For how long spans, which are in order and apart, cover a time."""
    place = max(bisect_right(spans, (start, 2**63)) - 1, 0)
    covered = 0
    for low, high in spans[place:]:
        if low >= end:
            break
        covered += max(0, min(high, end) - max(low, start))
    return covered
