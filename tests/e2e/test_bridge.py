"""The main job: from the segment to local programs, and back; and options of the configuration."""

from __future__ import annotations

import grp
import os
import socket
import stat
import time
from pathlib import Path

import pytest

import bccnd
from tests.e2e.harness import KEY, PATIENCE, Daemon, Wire, datagram, payloads, wait


def test_a_datagram_reaches_each_subscriber_once(signed: Daemon) -> None:
    with signed.connect("demo/", "demo/*", "") as one, signed.connect("demo/x") as two, Wire(signed.port) as wire:
        wire.send(*(datagram("relay02/sensor/77", seq, "demo/x", b"a|b\0c\n", KEY) for seq in (5, 6)))
        for client, seq in ((one, 5), (two, 5), (one, 6), (two, 6)):
            message = client.receive(PATIENCE)
            assert isinstance(message, bccnd.Message)
            assert message[:5] == ("relay02/sensor/77", seq, "demo/x", b"a|b\0c\n", "plain")
            assert message.peer == f"127.0.0.1:{signed.port}"
            assert abs(message.received_ns - time.time_ns()) < 60e9


def test_a_publication_reaches_clients_and_the_segment_signed(signed: Daemon) -> None:
    with signed.connect("demo/") as one, signed.connect("demo/") as two, Wire(signed.port) as wire:
        before_us = time.time_ns() // 1000
        for number in range(3):
            one.publish("demo/x", b"%d" % number)
        first = wire.receive(b"demo/x")
        src, seq, _ = first.split(b"]", 1)[1].split(b":", 2)
        assert src.decode() == one.identity()
        assert int(seq) >= before_us
        assert first == datagram(src.decode(), int(seq), "demo/x", b"0", KEY)
        for number in (1, 2):
            assert wire.receive(b"demo/x") == datagram(src.decode(), int(seq) + number, "demo/x", b"%d" % number, KEY)
        # Our own broadcasts come back to our socket, and are known for what they are.
        wait(lambda: signed.verdicts() == {"looped": 3})
        assert signed.metric("datagrams_sent_total") == 3
        one.publish("demo/x", b"3")
        for client in (one, two):  # a publisher gets its own message if it subscribed to it
            assert payloads(client, 4) == [b"0", b"1", b"2", b"3"]


# -- options


def test_the_bus_has_its_dialect_and_mode_and_metrics_can_be_off(tmp_path: Path) -> None:
    group = next(one for one in grp.getgrall() if one.gr_gid not in (0, os.getegid()))
    bus = {"dialect": "sbus-dot", "mode": "0600", **({"group": group.gr_name} if os.geteuid() == 0 else {})}
    daemon = Daemon(tmp_path / "a", {"bus": bus}, start=False)
    host, _, port = daemon.settings["metrics"]["listen"].partition(":")
    daemon.configure({"metrics": {"listen": "off"}})
    daemon.start()
    with daemon, daemon.connect("a.*.c", "end") as client, socket.socket() as visitor:
        for chan in ("a.b.c", "a.b/c.d", "end"):
            client.publish(chan, chan)
        assert payloads(client, 2) == [b"a.b.c", b"end"]
        info = daemon.bus.stat()
        assert stat.S_IMODE(info.st_mode) == 0o600
        assert info.st_gid == (group.gr_gid if os.geteuid() == 0 else os.getegid())
        with pytest.raises(ConnectionRefusedError):
            visitor.connect((host, int(port)))


def test_copies_that_wait_are_sent_before_the_daemon_ends(tmp_path: Path) -> None:
    slow = {"repeat": [{"channels": "", "copies": 2, "spacing": "1s"}]}
    with Daemon(tmp_path / "a", slow) as daemon, Wire(daemon.port) as wire, daemon.connect() as client:
        client.publish("x", b"before")
        assert client.sync() == []
        daemon.configure({"repeat": []})
        daemon.reload()
        client.publish("x", b"after")
        assert client.sync() == []
        assert daemon.stop() == 0
        heard = [wire.receive(b"BCCN1").rpartition(b"|")[2] for _ in range(3)]
        assert heard == [b"before", b"after", b"before"]
