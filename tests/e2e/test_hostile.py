"""Broken and flooding clients and senders cost only themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.harness import Daemon, Wire, datagram, payloads, wait


def send_slowly(wire: Wire, daemon: Daemon, datagrams: list[bytes]) -> None:
    """Send in steps that the socket's buffer surely holds, so that what is lost was lost by the daemon."""
    before = daemon.metric("datagrams_received_total")
    for start in range(0, len(datagrams), 500):
        step = datagrams[start : start + 500]
        wire.send(*step)
        before += len(step)
        wait(lambda: daemon.metric("datagrams_received_total") >= before, "the daemon to read")  # noqa: B023


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
