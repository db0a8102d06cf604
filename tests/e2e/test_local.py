"""A program that speaks to this host only: nothing of it on the segment, also when the daemon is killed meanwhile."""

from __future__ import annotations

import signal
from pathlib import Path

import bccnd
from tests.e2e.harness import PATIENCE, Wire, payloads
from tests.e2e.supervisor import Supervisor


def test_local_clients_hear_it_and_the_segment_does_not_whenever_the_daemon_dies(tmp_path: Path) -> None:
    with Supervisor(tmp_path / "a") as supervisor:
        supervisor.start()
        path = str(supervisor.bus)
        with Wire(supervisor.port) as wire, bccnd.connect(path) as listener, bccnd.connect(path) as speaker:
            listener.subscribe("a/")
            listener.sync()
            speaker.local(True)
            for number in range(5):
                speaker.publish("a/x", f"quiet {number}")
                supervisor.again(signal.SIGKILL)
                speaker.publish("a/x", f"quiet too {number}")
            assert speaker.sync(PATIENCE) == []
            wanted = [f"quiet {kind}{number}".encode() for number in range(5) for kind in ("", "too ")]
            assert payloads(listener, 10) == wanted
            assert speaker.reconnects == 0
            speaker.local(False)
            speaker.publish("a/x", "loud")
            assert wire.sock.recv(65536).endswith(b"|loud")
