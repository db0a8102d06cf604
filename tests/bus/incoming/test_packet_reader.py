"""Packets of clients: by turns, up to the end of a client, and whatever a packet meets."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest

from bccnd.bus.clients.access_rules import Allowed, Rule, admit_all
from bccnd.bus.incoming import packet_reader
from bccnd.bus.incoming.packet_reader import TURN
from bccnd.core.sending.user_quota import MAX_DEBT
from bccnd.core.wire import frames
from bccnd.net.peer import is_shut_down
from tests.support import ANN, Hub, messages, slow, turn_until


def test_clients_of_one_user_come_by_turns_when_its_share_of_a_round_is_used_up(tmp_path: Path) -> None:
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


def test_an_empty_packet_is_not_the_end_and_hides_nothing_before_the_end(hub: Hub) -> None:
    one, publisher = hub.connect(b"a"), hub.connect(b"a")
    publisher.send(b"", b"MSG a\x001", b"", b"MSG a\x002")
    empty = b"CMSG !/bccn/error\0empty "
    assert publisher.all() == [empty, b"MSG a\x001", empty, b"MSG a\x002"]
    publisher.send(b"", b"MSG a\x003", b"", b"MSG a\x004")
    publisher.close()
    turn_until(hub.loop, lambda: len(hub.bus.clients) == 1)
    assert messages(one.all(), b"a") == [b"1", b"2", b"3", b"4"]


def test_half_closed_client_receives_and_costs_no_rounds(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    one, publisher = hub.connect(b"a"), hub.connect()
    ended = Mock(wraps=is_shut_down)
    monkeypatch.setattr(packet_reader, "is_shut_down", ended)
    one.send(b"MSG a\0last words")
    one.sock.shutdown(socket.SHUT_WR)
    assert one.receive() == b"MSG a\0last words"
    hub.turn(100)
    assert ended.call_count == 1
    publisher.publish(b"a", b"1", b"2")
    publisher.publish(b"!", b"3")
    publisher.all()
    assert one.waiting() == [b"MSG a\x001", b"MSG a\x002", b"MSG !\x003"]
    one.close()
    turn_until(hub.loop, lambda: len(hub.bus.clients) == 1)
    publisher.publish(b"a", b"4")
    assert publisher.all() == []


def test_a_client_that_has_shut_its_side_and_waits_for_nothing_is_ended(hub: Hub) -> None:
    one = hub.connect()
    one.sock.shutdown(socket.SHUT_WR)
    turn_until(hub.loop, lambda: not hub.bus.clients)
    hub.turn()
    assert one.ended()


def test_half_closed_client_gets_its_queue(small: Hub) -> None:
    one, publisher = slow(small, b"a"), small.connect()
    publisher.publish(b"a", *[b"%d" % number + b"x" * 1000 for number in range(15)])
    publisher.all()
    one.send(b"UNSUB a")
    one.sock.shutdown(socket.SHUT_WR)
    small.turn()
    assert [one.receive().partition(b"x")[0] for _ in range(15)] == [b"MSG a\0%d" % number for number in range(15)]


@pytest.mark.parametrize("unread", [False, True])
def test_what_a_client_sent_before_it_ended_is_done(hub: Hub, unread: bool) -> None:
    one, publisher = hub.connect(b"a"), hub.connect(*[b"a"] * unread)
    publisher.publish(b"a", b"first")
    hub.turn()  # with `unread`, its own message now waits for the publisher, which will never read it
    payloads = [b"%d" % number for number in range(2 * TURN + 10)]
    publisher.publish(b"a", *payloads)
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


def test_messages_of_a_turn_and_answers_between_them_stay_in_order(hub: Hub) -> None:
    """Messages of a turn are sent together, but none is overtaken by an answer, and a client that leaves gets its."""
    one, leaver = hub.connect(b"a"), hub.connect(b"a")
    expected = []
    for number in range(TURN + 10):
        sync = frames.control(frames.SYNC, b"%d" % number)
        one.send(frames.message(b"a", b"%d" % number), sync)
        expected += [frames.message(b"a", b"%d" % number), sync]
    leaver.sock.shutdown(socket.SHUT_WR)
    hub.settle()
    assert one.waiting() == expected
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


def test_a_permission_counts_for_its_client_and_until_the_next_reload(tmp_path: Path) -> None:
    """A tag changes the identity, not what is permitted."""
    with Hub(tmp_path, others=[("path", admit_all)]) as hub:
        mine, other = hub.connect(), hub.connect(who=ANN)

        def answers() -> list[list[bytes]]:
            found = []
            for one in (mine, other, mine, other):
                one.publish(b"a/b", b"x")
                found.append([frame.partition(b"\0")[2] for frame in one.all()])
            assert found[:2] == found[2:]
            return found[:2]

        refused = [b"not_permitted a/b"]
        for ours, theirs in (([], []), ([b"a/"], [b"c/"]), ([b"c/"], [b"a/"]), ([b"a/"], [b"a/"]), ([], [])):
            rules = [Rule(uid=os.geteuid(), publish=tuple(ours)), Rule(uid=ANN.uid, publish=tuple(theirs))]
            hub.reload(rules=rules if ours else [])
            assert answers() == [refused if b"c/" in ours else [], refused if b"c/" in theirs else []]
            mine.send(b"CMSG !/bccn/tag\0left")
            mine.all()
            assert answers() == [refused if b"c/" in ours else [], refused if b"c/" in theirs else []]


def test_packets_of_a_turn_keep_their_order_whatever_is_among_them(hub: Hub) -> None:
    """So do the broadcasts. Some messages are refused or stay on this host."""
    one = hub.connect(b"")
    packets = [
        b"MSG a\x000",
        b"MSG b c\x001",
        b"CMSG !/bccn/sync\x002",
        b"MSG !\x003",
        b"nonsense",
        b"SUB x",
        b"MSG a\x004",
    ]
    for packet in packets:
        one.sock.send(packet)
    hub.turn(1)
    expected = [b"MSG a\x000", b"MSG b c\x001", b"CMSG !/bccn/error\0bad_channel b c", b"CMSG !/bccn/sync\x002"]
    expected += [b"MSG !\x003", b"CMSG !/bccn/error\0unknown_verb nonsense", b"MSG a\x004"]
    assert one.waiting() == expected
    assert [datagram.rpartition(b":")[2] for datagram in hub.sent] == [b"a|0", b"!|3", b"a|4"]
