"""Slow, broken and flooding clients and senders cost only themselves."""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import bccnd
from tests.e2e.harness import PATIENCE, Daemon, Wire, datagram, payloads, wait


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for the tests that leave it as it was; little waits for a client that does not read."""
    settings = {"bus": {"queue": {"messages": 100, "bytes": "1MiB"}}}
    with Daemon(tmp_path_factory.mktemp("daemon") / "a", settings) as daemon:
        yield daemon


def send_slowly(wire: Wire, daemon: Daemon, datagrams: list[bytes]) -> None:
    """Send in steps that the socket's buffer surely holds, so that what is lost was lost by the daemon."""
    before = daemon.metric("datagrams_received_total")
    for start in range(0, len(datagrams), 500):
        step = datagrams[start : start + 500]
        wire.send(*step)
        before += len(step)
        wait(lambda: daemon.metric("datagrams_received_total") >= before, "the daemon to read")  # noqa: B023


def test_a_client_that_stops_reading_loses_its_own_messages_and_knows_how_many(daemon: Daemon) -> None:
    total = 6000
    with (
        daemon.connect("x") as slow,
        daemon.connect("x") as quick,
        Wire(daemon.port) as wire,
    ):
        got: list[bytes] = []
        for start in range(0, total, 200):  # the quick one reads as it goes, the slow one not at all
            wire.send(*(datagram("a/b/1", seq, "x", b"%d" % seq) for seq in range(start, start + 200)))
            got += payloads(quick, 200)
        assert got == [b"%d" % seq for seq in range(total)]
        dropped = daemon.metric("deliveries_dropped_total", reason="queue_messages")
        assert dropped > 0
        assert "does not read fast enough" in daemon.said()
        assert "'x'" in daemon.said()
        # Whatever it reads now is in order, and what is not there is told at its place.
        expected, told = 0, 0
        while expected < total:
            event = slow.receive(PATIENCE)
            if isinstance(event, bccnd.Gap):
                expected += event.lost
                told += event.lost
            else:
                assert isinstance(event, bccnd.Message)
                assert event.payload == b"%d" % expected
                expected += 1
        assert (expected, told, slow.lost) == (total, int(dropped), int(dropped))
        wire.send(datagram("a/b/1", total, "x", b"on again"))
        assert payloads(slow, 1) == payloads(quick, 1) == [b"on again"]


def test_junk_is_answered_counted_and_ends_nobody(daemon: Daemon) -> None:
    generator = random.Random(7)
    before = daemon.metric("client_errors_total")
    with daemon.connect("x") as other:
        with daemon.raw() as junk:
            sent = [
                *(b"", b"HELLO", b"SUB", b"MSG no-payload", b"CMSG nonsense", b"UNSUB never", b"\0" * 100, b"MSGx y\0z")
            ]
            sent += [generator.randbytes(generator.randrange(1, 300)) for _ in range(200)]
            for packet in sent:
                junk.send(packet)
            for _ in sent:
                assert junk.recv(65536).startswith(b"CMSG !/bccn/error\0")
            junk.send(b"CMSG !/bccn/sync\0still here")
            assert junk.recv(65536) == b"CMSG !/bccn/sync\0still here"
        assert daemon.metric("client_errors_total") == before + len(sent)
        other.publish("x", b"fine")
        assert payloads(other, 1) == [b"fine"]


@pytest.mark.slow
def test_clients_that_die_in_the_middle_are_forgotten(tmp_path: Path) -> None:
    code = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]);"
        "s.send(b'SUB x'); s.send(b'SUB y/'); s.send(b'MSG x\\0one'); os.kill(os.getpid(), 9)"
    )
    with Daemon(tmp_path / "a") as daemon, daemon.connect("x") as other, Wire(daemon.port) as wire:
        for seq in range(5):
            done = subprocess.run([sys.executable, "-c", code, str(daemon.bus)], check=False)
            assert done.returncode == -signal.SIGKILL
            wire.send(datagram("a/b/1", seq, "x", b"two"))
        assert sorted(payloads(other, 10)) == [b"one"] * 5 + [b"two"] * 5
        wait(lambda: daemon.metric("clients") == 1)
        assert daemon.metric("subscriptions") == 1


@pytest.mark.slow
def test_a_flood_of_channels_sources_and_targets_grows_no_memory_without_bound(tmp_path: Path) -> None:
    caps = {"dedup": {"max_sources": 1000}}
    with Daemon(tmp_path / "a", caps) as daemon, daemon.connect("calm") as other, Wire(daemon.port) as wire:

        def flood(number: int) -> None:
            for start in range(number, number + 12_000, 400):
                send_slowly(
                    wire,
                    daemon,
                    [
                        datagram(f"s/{n}/1", 1, f"{'!' if n % 3 == 0 else ''}c/{n}/{'x' * 500}")
                        for n in range(start, start + 400)
                    ]
                    + [datagram("?", n, "c", b"y") for n in range(start, start + 40)],
                )

        flood(0)
        before = daemon.memory()
        flood(20_000)
        # The first flood has filled every table to its cap; the second must find room in them.
        assert daemon.memory() < before + (8 << 20)
        assert daemon.metric("sources") == 1000
        assert daemon.metric("sources_forgotten_total", cause="evicted") > 20_000
        wire.send(datagram("a/b/1", 1, "calm", b"undisturbed"))
        assert payloads(other, 1) == [b"undisturbed"]


def test_random_datagrams_have_one_verdict_each_and_none_is_a_bug(daemon: Daemon) -> None:
    generator = random.Random(11)
    good = datagram("a/b/1", 5, "x/y", b"payload")
    packets = [b""]
    for _ in range(3000):
        packet = bytearray(good if generator.random() < 0.8 else generator.randbytes(generator.randrange(1, 60)))
        for _ in range(generator.randrange(0, 4)):
            packet[generator.randrange(len(packet))] = generator.choice(b"[]:|!?/*=0129aB \0\xff")
        packets.append(bytes(packet))
    before = Counter(daemon.verdicts())
    with Wire(daemon.port) as wire:
        send_slowly(wire, daemon, packets)
        verdicts = Counter(daemon.verdicts()) - before
        assert verdicts.total() == len(packets)
        assert "internal_error" not in verdicts
        assert len(verdicts) > 6


@pytest.mark.slow
def test_running_out_of_descriptors_disturbs_nobody_who_is_there(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon, daemon.connect("x") as first:
        assert daemon.process is not None
        open_now = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (open_now + 3, hard))
        crowd = [daemon.raw() for _ in range(10)]
        wait(lambda: "cannot accept clients" in daemon.said())
        first.publish("x", b"served")
        assert payloads(first, 1) == [b"served"]
        for sock in crowd:
            sock.close()
        with daemon.connect("x") as late:
            first.publish("x", b"both")
            assert payloads(late, 1) == payloads(first, 1) == [b"both"]


def test_visitors_of_the_metrics_port_cannot_hold_it_up(daemon: Daemon) -> None:
    with daemon.connect("x") as client:
        host, port = daemon.settings["metrics"]["listen"].split(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(10)]
        idle[0].sendall(b"\xff\xfe garbage\r\n\r\n")
        idle[1].sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000)
        assert "bccnd_clients 1" in daemon.page("/metrics")
        assert daemon.page("/healthz") == "ok\n"
        assert "<h1>bccnd</h1>" in daemon.page("/")
        client.publish("x", b"fine")
        assert payloads(client, 1) == [b"fine"]
        for sock in idle:
            sock.close()
        request = urllib.request.Request(daemon.url + "/metrics", headers={"Accept": "application/openmetrics-text"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            assert answer.headers["content-type"].startswith("application/openmetrics-text")
            assert answer.read().endswith(b"# EOF\n")


@pytest.mark.slow
def test_the_kernels_drops_are_counted_at_once_and_said_with_a_remedy(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a", start=False) as daemon:
        daemon.configure({"segments": [{**daemon.settings["segments"][0], "receive_buffer": "4KiB"}]})
        daemon.start()
        with Wire(daemon.port) as wire:
            daemon.signal(signal.SIGSTOP)
            wire.send(*(datagram("a/b/1", seq, "x", b"y" * 1000) for seq in range(200)))
            daemon.signal(signal.SIGCONT)
            wait(lambda: daemon.metric("datagrams_received_total") > 0)
            dropped = daemon.metric("socket_drops_total")
            assert dropped > 0
            assert daemon.metric("datagrams_received_total") + dropped == 200
            wait(lambda: "the kernel dropped" in daemon.said())
            assert "raise receive_buffer" in daemon.said()
