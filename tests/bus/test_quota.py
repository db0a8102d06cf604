"""Limits of users: clients, memory of queues, patterns and time; histories with them are in test_modes.py."""

from __future__ import annotations

import itertools
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bccnd.bus.clients.access_rules import admit_all
from bccnd.bus.clients.registry import PORTION, PORTIONS
from bccnd.core.wire import frames
from tests.bus.leftovers import every_charge_is_what_is_kept
from tests.limits import descriptors
from tests.rules import bus_limits
from tests.support import ANN, BOB, Hub, refusals, slow, turn_until


def limited(folder: Path, **user: float) -> Hub:
    return Hub(folder, limits=bus_limits(queue={"messages": 1000}, user=user), others=[("path", admit_all)])


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"user": {"clients": 2}}, "too_many_clients_of_user"), ({"max_clients": 2}, "too_many_clients")],
)
def test_a_client_too_many_is_refused_until_another_leaves(
    tmp_path: Path, limits: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Hub(tmp_path, limits=bus_limits(**limits), others=[("path", admit_all)]) as hub:
        mine = [hub.connect(b"a", who=ANN) for _ in range(2)]
        before, account = descriptors(), mine[0].client.account
        for _ in range(3):
            account.seconds = 0.0
            with closing(hub.knock(ANN)) as third:
                hub.turn()
                assert third.receive() == b"CMSG !/bccn/error\0%b " % reason.encode()
                assert third.ended()
            assert account.seconds > 0.0  # refusing takes time, too
        assert descriptors() == before
        assert hub.bus.counters.refused[reason] == 3
        assert [getattr(one, "event", "") for one in caplog.records].count("client_refused") == 1
        if "user" in limits:
            hub.connect(who=BOB)
        clients = len(hub.bus.clients)
        mine[0].close()
        turn_until(hub.loop, lambda: len(hub.bus.clients) < clients)
        hub.connect(who=ANN)
        every_charge_is_what_is_kept(hub)


def test_answers_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    with limited(tmp_path, queue_bytes=5000) as hub:
        one = slow(hub, who=ANN)
        one.send(*[b"CMSG !/bccn/sync\0" + b"x" * 1000] * 20)
        hub.settle()
        assert 0 < one.client.account.queue_bytes <= 5000
        every_charge_is_what_is_kept(hub)
        untold = hub.bus.counters.control_dropped
        assert untold > 0
        assert len(one.all()) + untold == 20
        assert one.client.account.queue_bytes == 0
        hub.bus.replies.answer(one.client, frames.SYNC, b"x" * 20_000_000)  # which no socket takes
        assert one.client.open
        assert hub.bus.counters.control_dropped == untold + 1


def test_patterns_are_charged_for_their_memory(tmp_path: Path) -> None:
    with limited(tmp_path, subscriptions=20) as hub:
        one, other = hub.connect(), hub.connect()
        deep = [b"%d/" % number + b"a/" * 62 for number in range(6)]
        one.send(*(b"SUB " + pattern for pattern in deep))
        refused = [pattern for _, pattern in refusals(one.all())]
        assert refused
        assert refused == deep[-len(refused) :]
        other.send(b"SUB a")
        assert refusals(other.all()) == [(b"too_many_subscriptions", b"a")]
        one.close()
        turn_until(hub.loop, lambda: len(hub.bus.clients) == 1)
        other.send(b"SUB a")
        assert refusals(other.all()) == []


def test_too_many_wildcards_of_a_user_are_refused(tmp_path: Path) -> None:
    with limited(tmp_path, wildcards=3) as hub:
        one, other = hub.connect(b"*/a", b"*/b"), hub.connect()
        other.send(b"SUB */a/c", b"SUB a/*", b"SUB a/b/", b"SUB */d")
        assert refusals(other.all()) == [(b"too_many_wildcards", b"a/*")]
        one.publish(b"x/a/c", b"1")
        one.publish(b"a/b/c", b"2")
        assert other.all() == [b"MSG x/a/c\x001", b"MSG a/b/c\x002"]
        other.send(b"UNSUB */a/c", b"SUB a/*")
        assert refusals(other.all()) == []


def test_patterns_of_all_that_leave_go_in_bounded_steps(tmp_path: Path) -> None:
    with limited(tmp_path) as hub:
        patterns = [b"%d/*" % number for number in range(3 * PORTION)]
        crowd = [hub.connect(*patterns[PORTION:]) for _ in range(PORTIONS + 4)] + [hub.connect(*patterns)]
        publisher, fds = hub.connect(), {one.client.fd for one in crowd}
        for one in crowd:
            hub.bus.registry.end(one.client)
        left = [hub.routes.subscriptions]
        assert left == [(len(crowd) + 1) * PORTION]
        publisher.publish(b"%d/x" % (3 * PORTION - 1), b"")  # reaches none of them
        while left[-1]:
            hub.turn(1)
            left.append(hub.routes.subscriptions)
        assert max(before - after for before, after in itertools.pairwise(left)) <= PORTIONS * PORTION
        hub.turn(1)
        late = hub.connect(b"new")
        assert late.client.fd in fds  # it has been closed
        publisher.publish(b"new", b"x")
        assert late.all() == [b"MSG new\0x"]
