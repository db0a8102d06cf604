"""Packets of clients: by turns, up to the end of a client, and whatever a packet meets."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest

from bccnd.bus.clients.access_rules import Allowed, admit_all
from bccnd.bus.incoming import packet_reader
from bccnd.bus.incoming.packet_reader import TURN
from bccnd.core.sending.user_quota import MAX_DEBT
from bccnd.core.wire import frames
from bccnd.net.peer import is_shut_down
from tests.support import ANN, Hub, messages, turn_until


def test_clients_of_a_user_without_time_come_by_turns(tmp_path: Path) -> None:
    with Hub(tmp_path) as hub:
        hub.bus.quota.round_seconds = 1e-9  # one client of the user in each round
        crowd = [hub.connect() for _ in range(6)]
        for _ in range(60):
            for one in crowd:
                one.sock.send(b"MSG a\0x")
        # Each packet takes more than the share of the next rounds too.
        hub.turn(60 * MAX_DEBT)
        assert all(one.client.published for one in crowd)


def test_a_user_with_debts_waits_and_others_do_not(tmp_path: Path) -> None:
    with Hub(tmp_path, others=[("path", admit_all)]) as hub:
        hub.bus.quota.round_seconds = 0.004
        mine, other = hub.connect(), hub.connect(who=ANN)
        mine.client.account.charge(hub.loop.rounds, 0.004, 1e9)
        mine.sock.send(b"MSG a\0x")
        hub.turn(1)
        other.sock.send(b"MSG b\0y")
        turn_until(hub.loop, lambda: len(hub.sent) == 2)
        assert [b":b|" in datagram for datagram in hub.sent] == [True, False]


def test_a_client_that_half_closed_costs_no_rounds(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it receives, and when it is ended: tests/bus/test_modes.py."""
    one, asked = hub.connect(b"a"), Mock(wraps=is_shut_down)
    monkeypatch.setattr(packet_reader, "is_shut_down", asked)
    one.sock.shutdown(socket.SHUT_WR)
    hub.turn(100)
    assert asked.call_count == 1


@pytest.mark.parametrize("unread", [False, True])
def test_what_a_client_sent_before_it_ended_is_done(hub: Hub, unread: bool) -> None:
    one, publisher = hub.connect(b"a"), hub.connect(*[b"a"] * unread)
    publisher.publish(b"a", b"first")
    hub.turn()  # with `unread`, its own message now waits for the publisher, which will never read it
    payloads = [b"%d" % number for number in range(2 * TURN + 10)]
    publisher.publish(b"a", *payloads[:TURN])
    publisher.send(b"")  # which is not the end
    publisher.publish(b"a", *payloads[TURN:])
    publisher.close()
    turn_until(hub.loop, lambda: len(hub.bus.clients) == 1)
    assert messages(one.all(), b"a") == [b"first", *payloads]


def test_a_busy_client_leaves_the_others_their_turn(hub: Hub) -> None:
    busy, other = hub.connect(), hub.connect()
    for _ in range(TURN + 30):
        busy.sock.send(b"MSG a\0x")
    other.sock.send(b"MSG b\0y")
    hub.turn(1)
    assert 1 <= sum(b":a|" in datagram for datagram in hub.sent) <= TURN
    assert sum(b":b|" in datagram for datagram in hub.sent) == 1


def test_answers_overtake_no_message_of_their_turn(hub: Hub) -> None:
    """Messages of a turn are sent together, to a client that has shut its side, too."""
    one, leaver = hub.connect(b"a"), hub.connect(b"a")
    expected = []
    for number in range(TURN + 10):
        expected += [frames.message(b"a", b"%d" % number), frames.control(frames.SYNC, b"%d" % number)]
    one.send(*expected)
    leaver.sock.shutdown(socket.SHUT_WR)
    assert one.all() == expected
    assert leaver.waiting() == expected[::2]


def test_a_bug_met_by_one_client_ends_that_client_only(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    one, other = hub.connect(b"a"), hub.connect(b"a")

    def stumbles(_key: bytes) -> bool:
        raise ZeroDivisionError

    one.client.grant(replace(one.client.rights, publish=cast(Allowed, SimpleNamespace(permits=stumbles))))
    one.publish(b"a", b"stumble")
    hub.turn()
    assert one.ended()
    assert "internal_error" in [getattr(record, "event", "") for record in caplog.records]
    other.publish(b"a", b"fine")
    assert messages(other.all(), b"a") == [b"fine"]
