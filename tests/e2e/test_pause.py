"""A daemon that stands still for longer than a datagram can be under way, and goes on."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.e2e.harness import PATIENCE, Daemon, Wire, datagram, payloads


def test_copies_that_waited_for_us_are_still_copies(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon, daemon.connect("a/") as client, Wire(daemon.port) as wire:
        before = [datagram("relay02/x/1", seq, "a/b", b"%d" % seq) for seq in range(1, 40)]
        wire.send(*before)
        assert payloads(client, 39) == [b"%d" % seq for seq in range(1, 40)]
        daemon.signal(signal.SIGSTOP)
        # Copies at once, and more than one batch of what is new, over more than the horizon.
        wire.send(*before)
        for seq in range(40, 160):
            one = datagram("relay02/x/1", seq, "a/b", b"%d" % seq)
            wire.send(one, one)
            time.sleep(0.025)
        daemon.signal(signal.SIGCONT)
        assert payloads(client, 120) == [b"%d" % seq for seq in range(40, 160)]
        assert client.sync(PATIENCE) == []
        assert client.receive(0) is None
        assert daemon.verdicts() == {"accepted": 159, "duplicate": 159}


@pytest.mark.slow
def test_a_sender_that_began_anew_while_we_stood_still_is_heard(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon, daemon.connect("a/") as client, Wire(daemon.port) as wire:
        wire.send(datagram("relay02/x/1", 50, "a/b", b"before"))
        assert payloads(client, 1) == [b"before"]
        daemon.signal(signal.SIGSTOP)
        time.sleep(2.3)
        wire.send(datagram("relay02/x/1", 1, "a/b", b"anew"))
        time.sleep(0.4)
        daemon.signal(signal.SIGCONT)
        assert payloads(client, 1) == [b"anew"]
        assert daemon.verdicts() == {"accepted": 1, "restart": 1}
