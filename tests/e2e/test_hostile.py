"""Broken and flooding clients and senders cost only themselves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Daemon, Wire, datagram, payloads, wait


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for the tests that leave it as it was."""
    with Daemon(tmp_path_factory.mktemp("daemon") / "a") as daemon:
        yield daemon


def send_slowly(wire: Wire, daemon: Daemon, datagrams: list[bytes]) -> None:
    """Send in steps that the socket's buffer surely holds, so that what is lost was lost by the daemon."""
    before = daemon.metric("datagrams_received_total")
    for start in range(0, len(datagrams), 500):
        step = datagrams[start : start + 500]
        wire.send(*step)
        before += len(step)
        wait(lambda: daemon.metric("datagrams_received_total") >= before, "the daemon to read")  # noqa: B023


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
