"""Copies of messages that wait for their time."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.harness import Daemon, Wire


def test_copies_that_wait_are_sent_before_the_daemon_ends_and_rules_can_be_reloaded(tmp_path: Path) -> None:
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
