"""Finds what is wrong in a fleet, in words: which host loses messages from which sender, which is silent, and which
has another key or version.

Loss is attributed as in the report of the pipeline (`attribution`): each loss once, to the smallest cause that explains
it. A fleet without faults has no findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from bccnd.fleet.attribution import Attribution, Loss, Sums, attribute_pairs, sum_pairs
from bccnd.fleet.matrix import Cell, HostRow
from bccnd.fleet.steps import Steps, chunks

#: the order of findings
KINDS: Final = (
    *("host_silent", "segment_loses", "receiver_loses", "sender_lost", "link_loses", "key_differs", "version_differs"),
)
#: algorithms with which each host has a key of its own
OWN_KEYS: Final = "sig"
#: hosts named in one sentence
_NAMED: Final = 4


class FleetFinding(NamedTuple):
    """One thing to look at; ``about`` are the hosts concerned."""

    kind: str
    about: tuple[str, ...]
    text: str


def find(
    rows: Sequence[HostRow], cells: Sequence[Cell], own: str, now: float, sums: Sums | None = None
) -> Steps[list[FleetFinding]]:
    """Return the findings, the most important first; ``own`` is the host that looks. ``cells`` may be only those of
    suspects, where the ``sums`` of all are given."""
    heard = [row for row in rows if row.host == own or not row.silent(now)]
    losses = yield from _losses(cells, sums)
    found = [*_silent(rows, own, now), *losses, *_keys(heard), *_versions(heard)]
    return sorted(found, key=lambda one: KINDS.index(one.kind))


def _silent(rows: Sequence[HostRow], own: str, now: float) -> Iterator[FleetFinding]:
    others = [row for row in rows if row.host != own]
    silent = sorted(row.host for row in others if row.silent(now))
    if len(silent) > 1 and len(silent) == len(others):
        yield FleetFinding(
            "host_silent", (own,), f"{own} receives no report of any host: check its interface and its keys."
        )
        return
    for host in silent:
        seconds = now - next(row.heard for row in others if row.host == host)
        yield FleetFinding(
            "host_silent", (host,), f"{host} has not reported for {seconds:.0f} s: it is down, or cut off."
        )


def _losses(cells: Sequence[Cell], sums: Sums | None) -> Steps[list[FleetFinding]]:
    pairs: list[Loss] = []
    for chunk in chunks(cells):
        yield
        pairs += (
            Loss(receiver, sender, received + lost, lost)
            for receiver, sender, received, lost, _, _ in chunk
            if receiver != sender and received + lost
        )
    return list(_describe((yield from attribute_pairs(pairs, sums or sum_pairs(pairs)))))


def _describe(causes: Attribution) -> Iterator[FleetFinding]:
    if causes.segment is not None:
        yield FleetFinding("segment_loses", (), f"All hosts lose messages from all others: {_share(causes.segment)}.")
    for one in _worst(causes.receivers):
        text = f"{one.host} loses {_share(one)} of what it should receive, from {one.touched} of {one.pairs} hosts"
        yield FleetFinding("receiver_loses", (one.host,), f"{text}; elsewhere {_rate(one.elsewhere)} is lost.")
    for one in _worst(causes.senders):
        text = f"{_share(one)} of what {one.sender} sends is lost, by {one.touched} of {one.pairs} receivers"
        yield FleetFinding("sender_lost", (one.sender,), f"{text}; elsewhere {_rate(one.elsewhere)} is lost.")
    for one in _worst(causes.pairs):
        text = f"{one.host} loses {_share(one)} of what {one.sender} sends"
        yield FleetFinding("link_loses", (one.host, one.sender), f"{text}; elsewhere {_rate(one.elsewhere)} is lost.")


def _worst(losses: Sequence[Loss]) -> list[Loss]:
    return sorted(losses, key=lambda one: -one.rate)


def _share(loss: Loss) -> str:
    return f"{_rate(loss.rate)} ({loss.lost:,} of {loss.due:,})"


def _rate(rate: float) -> str:
    percent = rate * 100
    return f"{percent:.0f} %" if percent >= 10 or not percent else f"{percent:.2g} %"


def _keys(rows: Sequence[HostRow]) -> Iterator[FleetFinding]:
    def signed(row: HostRow) -> str:
        algorithm, fingerprints = row.keys
        if algorithm == OWN_KEYS or not fingerprints:
            return algorithm
        return f"{algorithm} with key {fingerprints[0]}"

    for name, hosts, usual, others in _minorities((signed(row), row.host) for row in rows if row.keys[0]):
        yield FleetFinding(
            "key_differs", hosts, f"{_list(hosts)} {_verb(hosts, 'sign')} {name}; {others} of the others {usual}."
        )


def _versions(rows: Sequence[HostRow]) -> Iterator[FleetFinding]:
    for name, hosts, usual, others in _minorities((row.version, row.host) for row in rows if row.version):
        yield FleetFinding(
            "version_differs", hosts, f"{_list(hosts)} {_verb(hosts, 'run')} {name}; {others} of the others {usual}."
        )


def _minorities(named: Iterable[tuple[str, str]]) -> Iterator[tuple[str, tuple[str, ...], str, int]]:
    """Yield what few have: its name, its hosts, and what most have, and how many these are."""
    groups: dict[str, list[str]] = {}
    for name, host in named:
        groups.setdefault(name, []).append(host)
    usual = max(sorted(groups), key=lambda name: len(groups[name]), default="")
    for name, hosts in sorted(groups.items()):
        if name != usual:
            yield name, tuple(sorted(hosts)), usual, len(groups[usual])


def _list(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
    return ", ".join(hosts[:_NAMED]) + more


def _verb(hosts: Sequence[str], verb: str) -> str:
    return f"{verb}s" if len(hosts) == 1 else verb
