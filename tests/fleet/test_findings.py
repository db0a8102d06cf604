"""Findings of a fleet: each fault alone gives one, and a healthy fleet gives none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bccnd.fleet.findings import FleetFinding, find
from bccnd.fleet.matrix import Cell, HostRow
from bccnd.fleet.steps import complete

HOSTS = [f"relay{number:02d}" for number in range(1, 6)]
EACH = 1000


def rows(now: float = 0.0) -> list[HostRow]:
    made = []
    for host in HOSTS:
        row = HostRow(host, now)
        row.version, row.keys, row.interval = "1.0.0", ("hmac", ("aa", "bb")), 10.0
        made.append(row)
    return made


def cells(lost: Callable[[str, str], int] = lambda _receiver, _sender: 0) -> list[Cell]:
    return [
        Cell(receiver, sender, EACH - lost(receiver, sender), lost(receiver, sender), 0, 0)
        for receiver in HOSTS
        for sender in HOSTS
        if receiver != sender
    ]


def found_in(fleet: list[HostRow], lost: Callable[[str, str], int] = lambda *_pair: 0) -> list[FleetFinding]:
    return complete(find(fleet, cells(lost), HOSTS[0], 1.0))


def kinds(found: list[FleetFinding]) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.kind, one.about) for one in found]


@pytest.mark.parametrize(
    ("lost", "kind", "about"),
    [
        (lambda receiver, _sender: 50 * (receiver == HOSTS[2]), "receiver_loses", (HOSTS[2],)),
        (lambda _receiver, sender: 50 * (sender == HOSTS[3]), "sender_lost", (HOSTS[3],)),
        (lambda *pair: 50 * (pair == (HOSTS[1], HOSTS[4])), "link_loses", (HOSTS[1], HOSTS[4])),
        (lambda *_pair: 50, "segment_loses", ()),
    ],
)
def test_loss_is_found_with_its_cause(lost: Callable[[str, str], int], kind: str, about: tuple[str, ...]) -> None:
    found = found_in(rows(), lost)
    assert kinds(found) == [(kind, about)]
    assert all(name in found[0].text for name in about)


def test_silent_hosts_and_those_that_differ_are_found() -> None:
    fleet = rows()
    assert found_in(fleet) == complete(find([], [], HOSTS[0], 1.0)) == []
    fleet[1].keys = "hmac", ("bb", "aa")
    fleet[2].heard = fleet[2].noticed = -100.0
    fleet[4].version = "0.9.0"
    assert sorted(kinds(found_in(fleet))) == [
        *(("host_silent", (HOSTS[2],)), ("key_differs", (HOSTS[1],)), ("version_differs", (HOSTS[4],)))
    ]
    # If all are silent this one is.
    assert kinds(found_in(rows(-100.0))) == [("host_silent", (HOSTS[0],))]
    for row in (fleet := rows()):
        row.keys = "sig", (row.host,)  # each has a key of its own
    assert found_in(fleet) == []
