"""The main job: from the segment to local programs, and back."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator

import pytest

import bccnd
from tests.e2e.harness import BIN, KEY, PATIENCE, Daemon, Wire, datagram, payloads, wait


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that requires HMAC, for all tests; each of them has senders of its own."""
    daemon = Daemon(tmp_path_factory.mktemp("daemon") / "a", start=False)
    daemon.configure({"integrity": daemon.with_key(KEY)})
    daemon.start()
    with daemon:
        yield daemon


@pytest.fixture
def before(signed: Daemon) -> Counter[str]:
    """The verdicts before this test."""
    return Counter(signed.verdicts())


def test_a_datagram_reaches_every_subscriber_once_with_its_particulars(signed: Daemon) -> None:
    with signed.connect("demo/", "demo/*", "") as one, signed.connect("demo/x") as two, Wire(signed.port) as wire:
        wire.send(datagram("relay02/sensor/77", 5, "demo/x", b"a|b\0c\n", KEY))
        for client in (one, two):
            message = client.receive(PATIENCE)
            assert isinstance(message, bccnd.Message)
            assert message[:5] == ("relay02/sensor/77", 5, "demo/x", b"a|b\0c\n", "plain")
            assert message.peer == f"127.0.0.1:{signed.port}"
            assert abs(message.received_ns - time.time_ns()) < 60e9
            assert client.receive(0.1) is None


def test_what_a_client_publishes_reaches_local_clients_at_once_and_the_segment_signed(
    signed: Daemon, before: Counter[str]
) -> None:
    sent = signed.metric("datagrams_sent_total")
    with signed.connect("demo/") as one, signed.connect("demo/") as two, Wire(signed.port) as wire:
        before_us = time.time_ns() // 1000
        for number in range(3):
            one.publish("demo/x", b"%d" % number)
        for client in (one, two):  # a publisher gets its own message if it subscribed to it
            assert payloads(client, 3) == [b"0", b"1", b"2"]
        first = wire.hear(b"demo/x")
        src, seq, _ = first.split(b"]", 1)[1].split(b":", 2)
        assert src.decode() == one.identity()
        assert int(seq) >= before_us
        assert first == datagram(src.decode(), int(seq), "demo/x", b"0", KEY)
        for number in (1, 2):
            assert wire.hear(b"demo/x") == datagram(src.decode(), int(seq) + number, "demo/x", b"%d" % number, KEY)
        # Our own broadcasts come back to our socket, and are known for what they are.
        wait(lambda: Counter(signed.verdicts()) - before == {"looped": 3})
        assert one.receive(0.1) is None
        assert signed.metric("datagrams_sent_total") == sent + 3


def test_broadcasts_of_a_client_that_has_left_are_still_known_as_ours(signed: Daemon, before: Counter[str]) -> None:
    assert signed.tool("pub", "demo/x", "hello").returncode == 0
    wait(lambda: Counter(signed.verdicts()) - before == {"looped": 1})


def test_two_daemons_on_one_segment_receive_from_each_other_and_never_from_themselves(
    signed: Daemon, before: Counter[str]
) -> None:
    shared = {name: signed.settings[name] for name in ("segments", "integrity")}
    with (
        Daemon(signed.folder / "b", {**shared, "host": "relay02"}) as other,
        signed.connect("y/") as here,
        other.connect("y/") as there,
    ):
        here.publish("y/1", b"from one")
        there.publish("y/2", b"from two")
        assert sorted(payloads(here, 2)) == sorted(payloads(there, 2)) == [b"from one", b"from two"]
        assert here.receive(0.1) is there.receive(0.1) is None
        wait(lambda: Counter(signed.verdicts()) - before == other.verdicts() == {"accepted": 1, "looped": 1})


def test_the_tool_publishes_lines_and_prints_messages(signed: Daemon) -> None:
    command = [str(BIN / "bccn"), "--socket", str(signed.bus)]
    subscriptions = signed.metric("subscriptions")
    with subprocess.Popen([*command, "sub", "--json", "-n", "3", "-t", "20", "logs/"], stdout=subprocess.PIPE) as sub:
        wait(lambda: signed.metric("subscriptions") > subscriptions, "bccn sub to subscribe")
        assert signed.tool("pub", "logs/a", stdin=b"one\ntwo \x1b[31m\n\xff\n").returncode == 0
        out, _ = sub.communicate(timeout=PATIENCE)
        assert sub.returncode == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row.get("payload", row.get("payload_base64")) for row in rows] == ["one", "two \x1b[31m", "/w=="]
    assert {row["chan"] for row in rows} == {"logs/a"}
    assert rows[1]["seq"] == rows[0]["seq"] + 1
    refused = signed.tool("pub", "no good", "x")
    assert refused.returncode == 1
    assert b"is no legal channel" in refused.stderr
    assert signed.tool("sub", "-n", "1", "-t", "0.1").returncode == 1
