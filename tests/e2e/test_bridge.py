"""The main job: from the segment to local programs, and back."""

from __future__ import annotations

import json
import os
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


def test_what_is_refused_is_counted_by_its_reason_and_not_delivered(signed: Daemon, before: Counter[str]) -> None:
    good = datagram("relay02/s/1", 1, "demo/x", b"one", KEY)
    refused = {
        "duplicate": good,
        "integrity_failed": datagram("relay02/s/1", 2, "demo/x", b"forged", b"another key, not ours"),
        "integrity_missing": datagram("relay02/s/1", 2, "demo/x", b"unsigned"),
        "integrity_unknown": b"BCCN1[23:crc32=01234567]relay02/s/1:2:demo/x|ab",
        "length_mismatch": b"BCCN1[999]relay02/s/1:2:demo/x|short",
        "bad_envelope": b"no datagram at all",
        "bad_body": datagram("relay02/s/1", 2, "demo:x", b"", KEY),
        "bad_src": datagram("relay02/*", 2, "demo/x", b"", KEY),
        "bad_channel": datagram("relay02/s/1", 2, "demo x", b"", KEY),
        "bad_target": datagram("relay02/s/1", 2, "!?", b"", KEY),
        "bad_seq": datagram("relay02/s/1", 2**64, "demo/x", b"", KEY),
        "not_addressed": datagram("relay02/s/1", 2, "!relay99/nobody", b"", KEY),
        "oversize": datagram("relay02/s/1", 3, "demo/x", b"x" * 1500, KEY),
        "unsupported_version": datagram("relay02/s/1", 3, "demo/x", b"", KEY).replace(b"BCCN1", b"BCCN2"),
        "stale": datagram("relay02/s/1", 0, "demo/x", b"late", KEY),
    }
    with signed.connect("") as client, Wire(signed.port) as wire:
        wire.send(good, *refused.values())
        wait(lambda: sum(signed.verdicts().values()) == before.total() + len(refused) + 1)
        assert Counter(signed.verdicts()) - before == Counter([*refused, "accepted"])
        assert payloads(client, 2, timeout=0.1) == [b"one"]


def test_directed_and_all_forms_go_by_identity_and_to_everyone(signed: Daemon, before: Counter[str]) -> None:
    with signed.connect() as one, signed.connect() as two, Wire(signed.port) as wire:
        # Both connections belong to this process, and so have one identity.
        assert one.identity() == two.identity()
        pid = os.getpid()
        assert one.identity().startswith("relay01/")
        assert one.identity().endswith(f"/{pid}")
        program = one.identity().split("/")[1]
        targets = [f"!relay01/{program}/{pid}", f"!relay01/{program}", f"!relay01/{program}/*", "!relay01", "!"]
        for seq, chan in enumerate(targets):
            wire.send(datagram("relay02/directed/1", seq, chan, chan, KEY))
        missed = [f"!relay01/{program}/{pid}/1", f"!relay01/{program}/{pid + 1}", "!relay02", "!relay", "!relay01/"]
        for seq, chan in enumerate(missed, start=len(targets)):
            wire.send(datagram("relay02/directed/1", seq, chan, chan, KEY))
        for client in (one, two):
            assert payloads(client, 5) == [target.encode() for target in targets]
            assert client.receive(0.1) is None
        assert Counter(signed.verdicts()) - before == {"accepted": len(targets), "not_addressed": len(missed)}


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


def test_what_no_datagram_can_carry_stays_on_this_host_and_its_publisher_is_told(
    signed: Daemon, before: Counter[str]
) -> None:
    with signed.connect("") as reader, signed.connect() as writer, Wire(signed.port) as wire:
        writer.publish("with blank", b"one")
        writer.publish("big", b"x" * 2000)
        writer.publish("!?nobody", b"three")
        writer.publish("!/bccn/liveness/x", b"four")
        assert [(one.reason, one.key) for one in writer.sync()] == [
            ("bad_channel", "with blank"),
            ("too_long", "big"),
            ("bad_target", "!?nobody"),
            ("reserved_key", "!/bccn/liveness/x"),
        ]
        assert payloads(reader, 3, timeout=0.2) == [b"one", b"x" * 2000]
        writer.publish("last", b"")
        assert b"|" in wire.hear(b"last")
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


def test_listings_show_clients_and_sources(signed: Daemon) -> None:
    sources = [f"relay02/listed/{number}" for number in range(250)]
    before = signed.metric("sources")
    with signed.connect("demo/") as client, Wire(signed.port) as wire:
        wire.send(*(datagram(one, 1, "x", b"", KEY) for one in sources))
        wait(lambda: signed.metric("sources") == before + 250)
        rows = [json.loads(line) for line in signed.tool("sources", "--json").stdout.splitlines()]
        assert sorted(row["src"] for row in rows if "/listed/" in row["src"]) == sorted(sources)
        rows = [json.loads(line) for line in signed.tool("clients", "--json").stdout.splitlines()]
        mine = next(row for row in rows if row["identity"] == client.identity())
        assert (mine["pid"], mine["uid"], mine["patterns"]) == (os.getpid(), os.getuid(), ["demo/"])
        assert client.identity().encode() in signed.tool("clients").stdout
        assert b"relay02/listed/249" in signed.tool("sources").stdout
