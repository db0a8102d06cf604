"""Attributes loss to a receiver, a sender, the segment, or the way between two hosts.

Invariant: each loss is attributed once, to the smallest cause that explains it: what all pairs of hosts lose to the
segment, what a host loses of nearly all senders to that receiver, what nearly all hosts lose of one sender to that
sender, and only the rest to pairs. What chance explains is attributed to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Final, NamedTuple

from bccnd.pipeline.report.facts import Link, sending_host

#: a lower share of loss is no finding: one message in a thousand
WORTH: Final = 0.001
#: nor are fewer messages
FEW: Final = 10
#: a pair with fewer messages has no meaningful rate
THIN: Final = 20
#: standard deviations that chance does not explain
SIGMA: Final = 4.0
#: pairs of one host that are reported as one
_TOGETHER: Final = 3
#: how far above the common rate a row must be, as a part of it
_ABOVE: Final = 0.5
#: part of a row's rate that its better half must have
_ALIKE: Final = 0.25
#: pairs that are needed to attribute loss to the segment
_PAIRS: Final = 4


class Pair(NamedTuple):
    """Messages of a sending host that a receiver could have had, and how many of them it lost."""

    host: str
    sender: str
    due: int
    lost: int

    @property
    def rate(self) -> float:
        return self.lost / self.due if self.due else 0.0


class Cause(NamedTuple):
    """Loss beyond chance. ``host`` receives, ``sender`` sends; None: all. ``touched`` of ``pairs`` have loss;
    ``elsewhere`` is the rate of all other pairs."""

    host: str | None
    sender: str | None
    due: int
    lost: int
    touched: int
    pairs: int
    elsewhere: float

    @property
    def rate(self) -> float:
        return self.lost / self.due if self.due else 0.0


class Unsent(NamedTuple):
    """Messages of a sending host that no host received."""

    sender: str
    expected: int
    lost: int


@dataclass(frozen=True)
class Attribution:
    """``alone`` are senders that only one host recorded: sender and receiver cannot be distinguished there."""

    segment: Cause | None
    receivers: tuple[Cause, ...]
    senders: tuple[Cause, ...]
    pairs: tuple[Cause, ...]
    unsent: tuple[Unsent, ...]
    alone: frozenset[str]


def attribute(links: Sequence[Link]) -> Attribution:
    """``links`` are by sending host."""
    alone = _recorded_once(links)
    pairs = [_pair(link, alone) for link in links if not link.own and link.any_seen + link.lost_everywhere]
    pairs = [pair for pair in pairs if pair.due]
    by_host, by_sender = _grouped(pairs, 0), _grouped(pairs, 1)
    level = _common_rate(pairs, by_host, by_sender)
    base = level or 0.0
    receivers = {name: rate for name, row in by_host.items() if (rate := _excess(row, base)) is not None}
    senders = {name: rate for name, row in by_sender.items() if (rate := _excess(row, base)) is not None}
    rest = [
        pair
        for pair in pairs
        if _stands_out(pair.lost, pair.due, base + receivers.get(pair.host, 0.0) + senders.get(pair.sender, 0.0))
    ]
    # A host that has trouble with several others, but not with nearly all, is reported once.
    some_hosts = [name for name, row in _grouped(rest, 0).items() if len(row) >= _TOGETHER and name not in receivers]
    rest = [pair for pair in rest if pair.host not in some_hosts]
    some_senders = [name for name, row in _grouped(rest, 1).items() if len(row) >= _TOGETHER and name not in senders]
    rest = [pair for pair in rest if pair.sender not in some_senders]
    return Attribution(
        _cause(None, None, pairs, []) if level is not None else None,
        tuple(_cause(name, None, by_host[name], pairs) for name in [*receivers, *sorted(some_hosts)]),
        tuple(_cause(None, name, by_sender[name], pairs) for name in [*senders, *sorted(some_senders)]),
        tuple(_cause(pair.host, pair.sender, [pair], pairs) for pair in rest),
        tuple(_unsent(links, pairs, alone)),
        alone,
    )


def _recorded_once(links: Iterable[Link]) -> frozenset[str]:
    hosts: dict[str, set[str]] = {}
    for link in links:
        if link.due:
            hosts.setdefault(sending_host(link.program), set()).add(link.host)
    return frozenset(sender for sender, receivers in hosts.items() if len(receivers) == 1)


def _pair(link: Link, alone: frozenset[str]) -> Pair:
    """Messages that no host received count only where there is no other host to compare with."""
    if link.program in alone:
        return Pair(link.host, link.program, link.due, link.lost)
    return Pair(link.host, link.program, max(link.any_seen - link.not_listening, 0), link.lost_here)


def _grouped(pairs: Iterable[Pair], place: int) -> dict[str, list[Pair]]:
    rows: dict[str, list[Pair]] = {}
    for pair in pairs:
        rows.setdefault(str(pair[place]), []).append(pair)
    return rows


def _pooled(pairs: Iterable[Pair]) -> tuple[int, int]:
    due = lost = 0
    for pair in pairs:
        due, lost = due + pair.due, lost + pair.lost
    return due, lost


def _rate(pairs: Iterable[Pair]) -> float:
    due, lost = _pooled(pairs)
    return lost / due if due else 0.0


def _stands_out(lost: int, due: int, expected_rate: float) -> bool:
    """Whether so many are more than a rate and chance explain, and enough for a finding."""
    expected = expected_rate * due
    return (
        lost >= FEW
        and lost - expected >= WORTH * due
        and lost - expected >= _ABOVE * expected
        and lost > expected + SIGMA * sqrt(expected)
    )


def _best(pairs: Sequence[Pair], number: int) -> list[Pair]:
    return sorted(pairs, key=lambda pair: pair.rate)[:number]


def _common_rate(
    pairs: Sequence[Pair], by_host: dict[str, list[Pair]], by_sender: dict[str, list[Pair]]
) -> float | None:
    """The rate that all pairs have in common; None if there is none."""
    solid = [pair for pair in pairs if pair.due >= THIN]
    if len(solid) < _PAIRS or len(by_host) < 2 or len(by_sender) < 2:
        return None
    level = min(median(_rate(row) for row in by_host.values()), median(_rate(row) for row in by_sender.values()))
    if level < WORTH or sum(pair.lost for pair in pairs) < FEW:
        return None
    # The better half is below the common rate by chance; it is far below if single hosts cause the loss.
    due, lost = _pooled(_best(solid, len(solid) - len(solid) // 2))
    return level if lost >= max(WORTH * due / 2, 1) and lost / due >= level / _TOGETHER else None


def _excess(row: Sequence[Pair], base: float) -> float | None:
    """By how much nearly all pairs of a row exceed the common rate, None if they do not. The better half decides, as
    single pairs may be bad for other reasons."""
    solid = [pair for pair in row if pair.due >= THIN]
    if len(solid) < 2:
        return None
    due, lost = _pooled(_best(solid, len(solid) - max(1, len(solid) // 2)))
    all_due, all_lost = _pooled(solid)
    rate = lost / due if due else 0.0
    if rate - base < WORTH / 2 or not _stands_out(all_lost, all_due, base):
        return None
    if lost <= base * due + SIGMA * sqrt(base * due) or rate < (1 + _ABOVE) * base:
        return None
    # One pair that loses nearly everything and one that lost a message by chance are not nearly all pairs.
    if lost < _TOGETHER or rate - base < (all_lost / all_due - base) * _ALIKE:
        return None
    return max(rate, median(pair.rate for pair in solid)) - base


def _cause(host: str | None, sender: str | None, row: Sequence[Pair], pairs: Sequence[Pair]) -> Cause:
    due, lost = _pooled(row)
    others = (
        pair
        for pair in pairs
        if (host is not None and pair.host != host) or (sender is not None and pair.sender != sender)
    )
    return Cause(host, sender, due, lost, sum(pair.lost > 0 for pair in row), len(row), _rate(others))


def _unsent(links: Iterable[Link], pairs: Iterable[Pair], alone: frozenset[str]) -> Iterable[Unsent]:
    expected: dict[str, int] = {}
    lost: dict[str, int] = {}
    for link in links:
        expected[link.program] = max(expected.get(link.program, 0), link.expected)
        lost[link.program] = max(lost.get(link.program, 0), link.lost_everywhere)
    rows = _grouped(pairs, 1)
    for sender, count in sorted(lost.items()):
        # Where each of few receivers loses much, some messages are lost by all of them at once, by chance.
        chance = 1.0 if sender in rows else 0.0
        for pair in rows.get(sender, []):
            chance *= pair.rate
        if sender not in alone and _stands_out(count, expected[sender], chance):
            yield Unsent(sender, expected[sender], count)
