"""Attributes loss to a receiver, a sender, the segment, or the way between two hosts.

Invariant: each loss is attributed once, to the smallest cause that explains it: what all pairs of hosts lose to the
segment, what a host loses of nearly all senders to that receiver, what nearly all hosts lose of one sender to that
sender, and only the rest to pairs. What chance explains is attributed to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt
from statistics import median
from typing import Final, NamedTuple, Protocol

from bccnd.fleet.steps import Steps, chunks, complete

#: a lower share of loss is no finding: one message in a thousand; nor are fewer messages
WORTH: Final = 0.001
FEW: Final = 10
#: a pair with fewer messages has no meaningful rate
THIN: Final = 20
#: standard deviations that chance does not explain
_SIGMA: Final = 4.0
#: pairs of one host that are reported as one, and pairs that are needed to attribute loss to the segment
_TOGETHER: Final = 3
_PAIRS: Final = 4
#: how far above the common rate a row must be, and what its better half must have, as parts of these rates
_ABOVE: Final = 0.5
_ALIKE: Final = 0.25


class Link(Protocol):
    """Counts of what a receiving ``host`` got of ``program``, or of all programs of a host. Of ``expected`` messages,
    ``any_seen`` were received by any host and ``lost_everywhere`` by none; ``lost_here`` and ``not_listening`` are
    those of ``any_seen`` that this host lost, or was not there for. ``own`` messages do not cross the network."""

    @property
    def host(self) -> str: ...
    @property
    def program(self) -> str: ...
    @property
    def expected(self) -> int: ...
    @property
    def any_seen(self) -> int: ...
    @property
    def lost_here(self) -> int: ...
    @property
    def lost_everywhere(self) -> int: ...
    @property
    def not_listening(self) -> int: ...
    @property
    def due(self) -> int: ...
    @property
    def lost(self) -> int: ...
    @property
    def own(self) -> bool: ...


class Loss(NamedTuple):
    """Loss between hosts: ``host`` receives, ``sender`` sends; "": all. ``touched`` of ``pairs`` of hosts have loss;
    ``elsewhere`` is the rate of all other pairs."""

    host: str
    sender: str
    due: int
    lost: int
    touched: int = 1
    pairs: int = 1
    elsewhere: float = 0.0

    @property
    def rate(self) -> float:
        return self.lost / self.due if self.due else 0.0


class Sums(NamedTuple):
    """What was lost of all pairs, by receiving host and by sender."""

    total: Loss
    hosts: Mapping[str, Loss]
    senders: Mapping[str, Loss]

    @property
    def level(self) -> float:
        """The rate that half of the hosts and half of the senders exceed."""
        if len(self.hosts) < 2 or len(self.senders) < 2:
            return 0.0
        return min(median(each.rate for each in sums.values()) for sums in (self.hosts, self.senders))

    @property
    def suspects(self) -> tuple[set[str], set[str]]:
        """Hosts and senders whose pairs `attribute_pairs` has to know, beside those that have lost `FEW` or more."""
        if self.total.lost < FEW:
            return set(), set()
        if self.level >= WORTH:
            return set(self.hosts), set(self.senders)
        hosts, senders = ({name for name, each in sums.items() if _suspect(each)} for sums in self[1:])
        return hosts, senders


@dataclass(frozen=True)
class Attribution:
    """Causes of loss. ``unsent`` are messages that no host received. ``alone`` are senders that only one host recorded:
    sender and receiver cannot be distinguished there."""

    segment: Loss | None
    receivers: Sequence[Loss]
    senders: Sequence[Loss]
    pairs: Sequence[Loss]
    unsent: Sequence[Loss]
    alone: frozenset[str]


def attribute(links: Sequence[Link]) -> Attribution:
    """Find the causes of loss. ``links`` are by sending host."""
    sent: dict[str, list[Link]] = {}
    for link in links:
        sent.setdefault(link.program, []).append(link)
    alone = frozenset(sender for sender, each in sent.items() if sum(link.due > 0 for link in each) == 1)
    pairs = [pair for link in links if not link.own and (pair := _pair(link, alone)).due]
    by_sender = _grouped(pairs, 1)
    unsent = [
        one for name in sorted(sent) if name not in alone and (one := _unsent(sent[name], by_sender.get(name, [])))
    ]
    return replace(complete(attribute_pairs(pairs, sum_pairs(pairs))), unsent=unsent, alone=alone)


def sum_pairs(pairs: Sequence[Loss]) -> Sums:
    hosts, senders = ({name: _sum(row) for name, row in _grouped(pairs, place).items()} for place in (0, 1))
    return Sums(_sum(pairs), hosts, senders)


def attribute_pairs(pairs: Sequence[Loss], sums: Sums) -> Steps[Attribution]:
    """Find the causes of what hosts have lost of each other. ``sums`` are those of all pairs; ``pairs`` may be only
    those that `Sums.suspects` names: there may be tens of thousands of others."""
    total, host_sums, sender_sums = sums
    if total.lost < FEW:
        return Attribution(None, [], [], [], [], frozenset())
    by_host, by_sender = (yield from _group(pairs, 0)), (yield from _group(pairs, 1))
    level = yield from _common_rate(pairs, sums.level)
    base = level or 0.0
    receivers: dict[str, float] = {}
    senders: dict[str, float] = {}
    for rates, rows, suspects in zip((receivers, senders), (by_host, by_sender), sums.suspects, strict=True):
        for name, row in rows.items():
            yield
            if name in suspects and (rate := _excess(row, base)) is not None:
                rates[name] = rate
    rest: list[Loss] = []
    for chunk in chunks(pairs):
        yield
        rest += (
            pair
            for pair in chunk
            if pair.lost >= FEW
            and _stands_out(pair, base + receivers.get(pair.host, 0.0) + senders.get(pair.sender, 0.0))
        )
    # A host that has trouble with several others, but not with nearly all, is reported once.
    some_hosts = [name for name, row in _grouped(rest, 0).items() if len(row) >= _TOGETHER and name not in receivers]
    rest = [pair for pair in rest if pair.host not in some_hosts]
    some_senders = [name for name, row in _grouped(rest, 1).items() if len(row) >= _TOGETHER and name not in senders]
    return Attribution(
        total if level is not None else None,
        [_cause(host_sums[name], total, host=name) for name in [*receivers, *sorted(some_hosts)]],
        [_cause(sender_sums[name], total, sender=name) for name in [*senders, *sorted(some_senders)]],
        [_cause(pair, total, pair.host, pair.sender) for pair in rest if pair.sender not in some_senders],
        [],
        frozenset(),
    )


def _pair(link: Link, alone: frozenset[str]) -> Loss:
    """Count messages that no host received only if there is no other host to compare with."""
    if link.program in alone:
        return Loss(link.host, link.program, link.due, link.lost)
    return Loss(link.host, link.program, max(link.any_seen - link.not_listening, 0), link.lost_here)


def _grouped(pairs: Sequence[Loss], place: int) -> dict[str, list[Loss]]:
    return complete(_group(pairs, place))


def _group(pairs: Sequence[Loss], place: int) -> Steps[dict[str, list[Loss]]]:
    rows: dict[str, list[Loss]] = {}
    for chunk in chunks(pairs):
        yield
        for pair in chunk:
            rows.setdefault(str(pair[place]), []).append(pair)
    return rows


def _sum(pairs: Sequence[Loss]) -> Loss:
    due, lost = sum([pair.due for pair in pairs]), sum([pair.lost for pair in pairs])
    return Loss("", "", due, lost, sum([pair.lost > 0 for pair in pairs]), len(pairs))


def _cause(loss: Loss, total: Loss, host: str = "", sender: str = "") -> Loss:
    others = Loss("", "", total.due - loss.due, total.lost - loss.lost)
    return loss._replace(host=host, sender=sender, elsewhere=others.rate)


def _stands_out(pair: Loss, expected_rate: float) -> bool:
    """Return whether so much is more than a rate and chance explain, and enough for a finding."""
    expected = expected_rate * pair.due
    more = pair.lost - expected
    return pair.lost >= FEW and more >= max(WORTH * pair.due, _ABOVE * expected) and more > _SIGMA * sqrt(expected)


def _better_half(pairs: Sequence[Loss]) -> Steps[Loss]:
    """Sum up the half of pairs that lose least, one more where their number is odd."""
    rates: list[float] = []
    for chunk in chunks(pairs):
        yield
        rates += (pair.rate for pair in chunk)
    yield
    best = sorted(range(len(pairs)), key=rates.__getitem__)
    yield
    return _sum([pairs[place] for place in best[: len(pairs) - len(pairs) // 2]])


def _suspect(row: Loss) -> bool:
    """Whether a row can exceed any rate; pairs with few messages may be left out of it."""
    return row.lost >= FEW and row.lost >= WORTH * (row.due - THIN * row.pairs)


def _common_rate(pairs: Sequence[Loss], level: float) -> Steps[float | None]:
    """Return the rate that all pairs have in common; None if there is none."""
    if level < WORTH:
        return None
    solid: list[Loss] = []
    for chunk in chunks(pairs):
        yield
        solid += (pair for pair in chunk if pair.due >= THIN)
    if len(solid) < _PAIRS:
        return None
    # The better half is below the common rate by chance; it is far below if single hosts cause the loss.
    better = yield from _better_half(solid)
    common = better.lost >= max(WORTH * better.due / 2, 1) and better.rate >= level / _TOGETHER
    return level if common else None


def _excess(row: Sequence[Loss], base: float) -> float | None:
    """Return by how much nearly all pairs of a row exceed the common rate, None if they do not. The better half
    decides, as single pairs may be bad for other reasons."""
    solid = [pair for pair in row if pair.due >= THIN]
    if len(solid) < 2 or not _stands_out(_sum(solid), base):
        return None
    better = complete(_better_half(solid))
    expected = base * better.due
    if better.rate < max(base + WORTH / 2, (1 + _ABOVE) * base) or better.lost <= expected + _SIGMA * sqrt(expected):
        return None
    # One pair that loses nearly everything and one that lost a message by chance are not nearly all pairs.
    if better.lost < _TOGETHER or better.rate - base < (_sum(solid).rate - base) * _ALIKE:
        return None
    return max(better.rate, median(pair.rate for pair in solid)) - base


def _unsent(links: Sequence[Link], row: Sequence[Loss]) -> Loss | None:
    """Return messages of a sending host that no host received. Where each of few receivers loses much, all lose some
    messages at once, by chance."""
    expected, lost_everywhere = (max(getattr(link, name) for link in links) for name in ("expected", "lost_everywhere"))
    lost = Loss("", links[0].program, expected, lost_everywhere)
    return lost if _stands_out(lost, prod(pair.rate for pair in row) if row else 0.0) else None
