"""A daemon that stands still while it is sent very much."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.harness import Daemon, Wire, datagram
from tests.support import cannot_here

COUNT = 100_000


@pytest.mark.slow
def test_a_burst_of_100_000_datagrams_waits_for_the_daemon(tmp_path: Path) -> None:
    """In the receive buffer that it has by default; slow readers have room for all of it."""
    daemon = Daemon(tmp_path / "a", start=False)
    del daemon.settings["segments"][0]["receive_buffer"]
    daemon.configure({"bus": {"queue": {"messages": COUNT, "bytes": "64MiB"}}})
    daemon.start()
    with daemon, daemon.connect("burst/") as client, Wire(daemon.port) as wire:
        if "the kernel limits the receive buffer to" in daemon.output():
            cannot_here("this user gets no receive buffer of the usual size (it takes root, or net.core.rmem_max)")
        burst = [datagram("relay02/burst/1", number, f"burst/{number % 100}", b"x" * 120) for number in range(COUNT)]
        daemon.signal(signal.SIGSTOP)
        wire.send(*burst)
        daemon.signal(signal.SIGCONT)
        for number in range(COUNT):
            assert getattr(client.receive(20.0), "seq", None) == number
        assert daemon.verdicts() == {"accepted": COUNT}
        assert daemon.metric("socket_drops_total") == 0
        assert daemon.metric("loop_stalled_seconds_total") > 0
