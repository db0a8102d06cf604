"""Rules of a firewall, and what becomes of a segment's datagrams in them.

A rule fits a datagram, does not fit it, or may fit it: some of what is asked for (rates, marks, addresses of senders)
is not known of a datagram that has yet to come. So there may be several outcomes; what is dropped in all of them is
kept out.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Action = Literal["accept", "drop", "return", "jump", "goto", "none"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: hooks of the kernel that a datagram for this host passes, in order
HOOKS: Final = ("ingress", "prerouting", "input")
#: chains within chains that are followed
_DEPTH: Final = 32


@dataclass(frozen=True)
class Arriving:
    """A datagram that comes in on a segment; ``interface`` is None and ``sources`` are empty where not known."""

    destination: Address
    port: int
    interface: str | None = None
    #: networks that senders are in
    sources: tuple[Network, ...] = ()

    @property
    def kind(self) -> str:
        """As the kernel calls the type of its destination."""
        return "multicast" if self.destination.is_multicast else "broadcast"

    def comes_by(self, name: str) -> bool | None:
        """Whether it comes by the interface of this name, which may end with ``*``."""
        if self.interface is None:
            return False if name == "lo" else None
        return self.interface.startswith(name[:-1]) if name.endswith("*") else self.interface == name

    def comes_from(self, network: Network) -> bool | None:
        """Whether its sender is in a network."""
        if not self.sources:
            return None
        alike = [one for one in self.sources if one.version == network.version]
        if all(_within(one, network) for one in alike):
            return bool(alike)
        return None if any(one.overlaps(network) for one in alike) else False


def _within(inner: Network, outer: Network) -> bool:
    return inner.network_address in outer and inner.broadcast_address in outer


@dataclass(frozen=True)
class Rule:
    """``fits`` is None where that is not known; ``names_port`` says that it is about the port of the segment."""

    fits: bool | None
    action: Action
    text: str
    target: str = ""
    names_port: bool = False
    #: what to name to take this rule away: a command of nft, or the rule
    removal: str = ""


@dataclass
class Chain:
    """``hook`` is empty for a chain that others jump to."""

    name: str
    hook: str = ""
    priority: int = 0
    policy: str = "accept"
    rules: list[Rule] = field(default_factory=list)


@dataclass(frozen=True)
class Drop:
    """Why a datagram is kept out: by the policy of a chain, or by a ``rule`` of it. ``path`` are the chains that lead
    there; ``always`` is False where only some datagrams are."""

    path: tuple[str, ...]
    rule: Rule | None
    always: bool = True


def find_drops(chains: Mapping[str, Chain]) -> Iterator[Drop]:
    """What keeps a datagram out in one table: at most one reason for each chain that a hook leads to."""
    bases = [chain for chain in chains.values() if chain.hook in HOOKS]
    for base in sorted(bases, key=lambda chain: (HOOKS.index(chain.hook), chain.priority)):
        outcomes, falls = _follow(base, chains, (base.name,))
        if falls:
            outcomes.append(None if base.policy == "accept" else Drop((base.name,), None))
        drops = [one for one in outcomes if one is not None]
        if drops and None not in outcomes:
            yield drops[-1]  # what all that passed the others meets
        else:
            partly = [one for one in drops if one.rule is not None and one.rule.names_port]
            yield from (Drop(one.path, one.rule, always=False) for one in partly)


def _follow(chain: Chain, chains: Mapping[str, Chain], path: tuple[str, ...]) -> tuple[list[Drop | None], bool]:
    """What may become of a datagram in a chain, None for one that is accepted; and whether it may come to its end."""
    outcomes: list[Drop | None] = []
    may_return = False
    for rule in chain.rules:
        if rule.fits is False:
            continue
        falls = False
        if rule.action in ("accept", "drop"):
            outcomes.append(None if rule.action == "accept" else Drop(path, rule))
        elif rule.action == "return":
            may_return = True
        elif rule.action in ("jump", "goto"):
            inner, falls = _follow_target(rule, chains, path)
            outcomes += inner
            if rule.action == "goto":
                may_return, falls = may_return or falls, False
        else:
            continue
        if rule.fits and not falls:
            return outcomes, may_return
    return outcomes, True


def _follow_target(rule: Rule, chains: Mapping[str, Chain], path: tuple[str, ...]) -> tuple[list[Drop | None], bool]:
    target = chains.get(rule.target)
    if target is None or len(path) >= _DEPTH:
        return [], True
    return _follow(target, chains, (*path, target.name))


def all_of(answers: Iterable[bool | None]) -> bool | None:
    """True if all are, False if one is, None otherwise."""
    found = list(answers)
    if False in found:
        return False
    return None if None in found else True


def any_of(answers: Iterable[bool | None]) -> bool | None:
    """True if one is, False if all are, None otherwise."""
    found = list(answers)
    if True in found:
        return True
    return None if None in found else False


def negate(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def in_network(text: str, address: Address) -> bool:
    """Whether an address is in a network, or is the one that is written there."""
    network = ipaddress.ip_network(text, strict=False)
    return address.version == network.version and address in network


def is_new(states: Sequence[str]) -> bool | None:
    """Whether a connection state is that of a datagram that answers none of ours."""
    names = {state.lower() for state in states}
    return True if "new" in names else None if "untracked" in names else False
