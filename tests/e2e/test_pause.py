"""A daemon that stands still while it is sent very much."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Daemon
from tests.support import BROADCAST, cannot_here

COUNT = 100_000


def burst(daemon: Daemon, count: int) -> None:
    """Datagrams as fast as they can be sent, 150 bytes each."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.connect((BROADCAST, daemon.port))
        for number in range(count):
            body = b"relay02/burst/1:%d:burst/%d|" % (number + 1, number % 100)
            sock.send(b"BCCN1[138]" + body.ljust(138, b"x") if number % 2 else b"BCCN1[140]" + body.ljust(140, b"y"))


@pytest.fixture
def usual(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with the receive buffer that it has by default, and with room for slow readers."""
    daemon = Daemon(tmp_path / "a", start=False)
    segment = {name: value for name, value in daemon.settings["segments"][0].items() if name != "receive_buffer"}
    daemon.configure({"segments": [segment], "bus": {"queue": {"messages": COUNT, "bytes": "64MiB"}}})
    daemon.start()
    with daemon:
        if "the kernel limits the receive buffer to" in daemon.output():
            cannot_here("this user gets no receive buffer of the usual size (it takes root, or net.core.rmem_max)")
        yield daemon


@pytest.mark.slow
def test_a_burst_of_100_000_datagrams_waits_for_the_daemon(usual: Daemon) -> None:
    with usual.connect("burst/") as client:
        usual.signal(signal.SIGSTOP)
        burst(usual, COUNT)
        usual.signal(signal.SIGCONT)
        seqs: list[object] = []
        while len(seqs) < COUNT:
            message = client.receive(20.0)
            assert message is not None, f"{len(seqs)} messages, and then no more"
            seqs.append(getattr(message, "seq", message))
    assert seqs == list(range(1, COUNT + 1))
    assert usual.verdicts() == {"accepted": COUNT}
    assert usual.metric("socket_drops_total") == 0
    assert usual.metric("loop_stalled_seconds_total") > 0
