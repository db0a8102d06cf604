"""Who is it: the receiver, the sender, the segment, or the way between two hosts?

Law: what many pairs of hosts have in common is explained once, by the least that explains it: what all pairs lose by
the segment, what one host loses of nearly everybody by that receiver, what nearly everybody loses of one host by that
sender, and only what is left by a pair. What chance explains is nobody's fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Final, NamedTuple

from bccnd.pipeline.report.facts import Link

#: loss below this is not worth anybody's time: one message in a thousand
WORTH: Final = 0.001
#: and neither are fewer messages than these
FEW: Final = 10
#: pairs with fewer messages than these say nothing about a rate
THIN: Final = 20
#: pairs of a host beyond all others that are told together, and the part of a common rate that the best half must have
TRIM: Final = 3
#: how many standard deviations are no chance any more
SIGMA: Final = 4.0
#: a row is told from what all have when it is above that by this part of it
ABOVE: Final = 0.5
#: part of the rate of a row that its better half must have
ALIKE: Final = 0.25
#: pairs in which everybody is involved must be so many to accuse the segment
PAIRS: Final = 4


class Cell(NamedTuple):
    """Messages of one sending host that one receiver could have had, and of these lost."""

    host: str
    sender: str
    due: int
    lost: int

    @property
    def rate(self) -> float:
        return self.lost / self.due if self.due else 0.0


class Blame(NamedTuple):
    """Somebody whose share of the loss is too much for chance. ``host`` receives, ``sender`` sends; None: all of them.
    ``partners`` of ``among`` pairs are touched."""

    host: str | None
    sender: str | None
    due: int
    lost: int
    partners: int
    among: int
    #: loss rate of everybody else, for comparison
    elsewhere: float

    @property
    def rate(self) -> float:
        return self.lost / self.due if self.due else 0.0


class Unsent(NamedTuple):
    """Messages of a sending host that nobody has seen, of so many that were numbered."""

    sender: str
    expected: int
    lost: int


@dataclass(frozen=True)
class Verdict:
    """All that is to blame. ``alone`` are senders whom a single host recorded: nothing tells sender and receiver apart
    there."""

    segment: Blame | None
    receivers: tuple[Blame, ...]
    senders: tuple[Blame, ...]
    pairs: tuple[Blame, ...]
    unsent: tuple[Unsent, ...]
    alone: frozenset[str]


def judge(links: Sequence[Link]) -> Verdict:
    """Of links by sending host."""
    alone = _alone(links)
    cells = [
        Cell(link.host, link.sender, *_counts(link, link.sender in alone))
        for link in links
        if not link.own and link.any_seen + link.lost_everywhere
    ]
    cells = [cell for cell in cells if cell.due]
    by_host, by_sender = _grouped(cells, 0), _grouped(cells, 1)
    level = _level(cells, by_host, by_sender)
    segment = _whole(cells) if level is not None else None
    base = level or 0.0
    receivers = {name: rate for name, row in by_host.items() if (rate := _excess(row, base)) is not None}
    senders = {name: rate for name, row in by_sender.items() if (rate := _excess(row, base)) is not None}
    left = [
        cell
        for cell in cells
        if _stands_out(cell.lost, cell.due, base + receivers.get(cell.host, 0.0) + senders.get(cell.sender, 0.0))
    ]
    # Somebody who has trouble with several, but not with nearly all, is told of once.
    many_hosts = {name for name, row in _grouped(left, 0).items() if len(row) >= TRIM and name not in receivers}
    left_senders = [cell for cell in left if cell.host not in many_hosts]
    many_senders = {name for name, row in _grouped(left_senders, 1).items() if len(row) >= TRIM and name not in senders}
    pairs = [cell for cell in left_senders if cell.sender not in many_senders]
    return Verdict(
        segment,
        tuple(_row(name, None, by_host[name], cells) for name in [*receivers, *sorted(many_hosts)]),
        tuple(_row(None, name, by_sender[name], cells) for name in [*senders, *sorted(many_senders)]),
        tuple(_pair(cell, cells) for cell in pairs),
        tuple(_unsent(links, cells, alone)),
        alone,
    )


def _alone(links: Iterable[Link]) -> frozenset[str]:
    hosts: dict[str, set[str]] = {}
    for link in links:
        if link.due:
            hosts.setdefault(link.sender, set()).add(link.host)
    return frozenset(sender for sender, who in hosts.items() if len(who) == 1)


def _counts(link: Link, alone: bool) -> tuple[int, int]:
    """What was due and what was lost: what nobody saw counts where there is nobody to compare with."""
    if alone:
        return link.due, link.lost
    return max(link.any_seen - link.not_listening, 0), link.lost_here


def _grouped(cells: Iterable[Cell], place: int) -> dict[str, list[Cell]]:
    rows: dict[str, list[Cell]] = {}
    for cell in cells:
        rows.setdefault(str(cell[place]), []).append(cell)
    return rows


def _pooled(cells: Iterable[Cell]) -> tuple[int, int]:
    due = lost = 0
    for cell in cells:
        due, lost = due + cell.due, lost + cell.lost
    return due, lost


def _rate(cells: Iterable[Cell]) -> float:
    due, lost = _pooled(cells)
    return lost / due if due else 0.0


def _stands_out(lost: int, due: int, expected_rate: float) -> bool:
    """Whether so many are more than a rate and chance explain, and worth a word."""
    expected = expected_rate * due
    return (
        lost >= FEW
        and lost - expected >= WORTH * due
        and lost - expected >= ABOVE * expected
        and lost > expected + SIGMA * sqrt(expected)
    )


def _better(cells: Sequence[Cell], drop: int) -> list[Cell]:
    return sorted(cells, key=lambda cell: cell.rate)[: max(len(cells) - drop, 0)]


def _level(cells: Sequence[Cell], by_host: dict[str, list[Cell]], by_sender: dict[str, list[Cell]]) -> float | None:
    """The rate that all pairs have in common, or None where there is no such thing."""
    solid = [cell for cell in cells if cell.due >= THIN]
    if len(solid) < PAIRS or len(by_host) < 2 or len(by_sender) < 2:
        return None
    best = _better(solid, len(solid) // 2)
    due, lost = _pooled(best)
    level = min(median(_rate(row) for row in by_host.values()), median(_rate(row) for row in by_sender.values()))
    if level < WORTH or sum(cell.lost for cell in cells) < FEW:
        return None
    # The better half has less than all have, if only by chance; nothing at all it has where others are to blame.
    return level if lost >= max(WORTH * due / 2, 1) and lost / due >= level / TRIM else None


def _excess(row: Sequence[Cell], base: float) -> float | None:
    """By how much nearly all pairs of a row are above what everybody has; None where they are not. The better half
    decides: the others may be bad for other reasons."""
    solid = [cell for cell in row if cell.due >= THIN]
    if len(solid) < 2:
        return None
    due, lost = _pooled(_better(solid, max(1, len(solid) // 2)))
    all_due, all_lost = _pooled(solid)
    rate = lost / due if due else 0.0
    if rate - base < WORTH / 2 or not _stands_out(all_lost, all_due, base):
        return None
    if lost <= base * due + SIGMA * sqrt(base * due) or rate < (1 + ABOVE) * base:
        return None
    # One pair that loses nearly all, and another one that lost a message by chance, are not nearly all pairs.
    if lost < TRIM or rate - base < (all_lost / all_due - base) * ALIKE:
        return None
    return max(rate, median(cell.rate for cell in solid)) - base


def _whole(cells: Sequence[Cell]) -> Blame:
    due, lost = _pooled(cells)
    return Blame(None, None, due, lost, sum(cell.lost > 0 for cell in cells), len(cells), 0.0)


def _row(host: str | None, sender: str | None, row: Sequence[Cell], cells: Sequence[Cell]) -> Blame:
    due, lost = _pooled(row)
    others = [cell for cell in cells if (cell.host != host if host is not None else cell.sender != sender)]
    return Blame(host, sender, due, lost, sum(cell.lost > 0 for cell in row), len(row), _rate(others))


def _pair(cell: Cell, cells: Sequence[Cell]) -> Blame:
    return Blame(cell.host, cell.sender, cell.due, cell.lost, 1, 1, _rate(one for one in cells if one is not cell))


def _unsent(links: Iterable[Link], cells: Iterable[Cell], alone: frozenset[str]) -> Iterable[Unsent]:
    expected: dict[str, int] = {}
    lost: dict[str, int] = {}
    for link in links:
        expected[link.sender] = max(expected.get(link.sender, 0), link.expected)
        lost[link.sender] = max(lost.get(link.sender, 0), link.lost_everywhere)
    rows = _grouped(cells, 1)
    for sender, count in sorted(lost.items()):
        if sender in alone:
            continue
        # Where each of few receivers loses much, some messages are lost by all of them at once, by chance.
        chance = 1.0
        for cell in rows.get(sender, []):
            chance *= cell.rate
        if _stands_out(count, expected[sender], chance if rows.get(sender) else 0.0):
            yield Unsent(sender, expected[sender], count)
