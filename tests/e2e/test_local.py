"""A program that speaks to this host only: nothing of it on the segment, also when the daemon is killed meanwhile."""

from __future__ import annotations

import signal
from pathlib import Path

import bccnd
from tests.e2e.harness import PATIENCE, Daemon, Wire
from tests.e2e.supervisor import Supervisor


def until_loud(wire: Wire) -> list[bytes]:
    """All that is on the segment before the first message that is to be there."""
    heard = []
    while not (data := wire.sock.recv(65536)).endswith(b"|loud"):
        heard.append(data)
    return heard


def test_local_clients_hear_it_and_the_segment_does_not(tmp_path: Path) -> None:
    with (
        Daemon(tmp_path / "a") as daemon,
        Wire(daemon.port) as wire,
        bccnd.connect(str(daemon.bus)) as listener,
        bccnd.connect(str(daemon.bus)) as speaker,
    ):
        listener.subscribe("a/")
        listener.sync()
        speaker.local(True)
        for number in range(100):
            speaker.publish("a/x", f"quiet {number}")
        assert speaker.sync() == []
        got = [next(iter(listener)).payload for _ in range(100)]
        assert got == [f"quiet {number}".encode() for number in range(100)]
        speaker.local(False)
        speaker.publish("a/x", "loud")
        assert until_loud(wire) == []


def test_so_it_is_after_every_death_of_the_daemon(tmp_path: Path) -> None:
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
            speaker.sync(PATIENCE)
            got = [next(iter(listener)).payload.decode() for _ in range(10)]
            assert got == [f"quiet {kind}{number}" for number in range(5) for kind in ("", "too ")]
            assert speaker.reconnects == 0
            speaker.local(False)
            speaker.publish("a/x", "loud")
            assert until_loud(wire) == []
