"""`bccn doctor` on a real host: well, and with one fault at a time."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import BIN, PATIENCE, Daemon
from tests.e2e.network import PORT, Net

#: what depends on the machine that the tests run on, and not on the host that is examined
ELSEWHERE = {"clock", "service", "log", "recorder"}


def run(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*daemon.prefix, str(BIN / "bccn"), "doctor", "--config", str(daemon.config), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE, check=False)


class Found:
    """What it finds, and its exit status."""

    def __init__(self, daemon: Daemon) -> None:
        done = run(daemon, "--json")
        assert done.stderr == ""
        self.status = done.returncode
        self.rows: list[dict[str, Any]] = json.loads(done.stdout)
        for row in self.rows:
            assert set(row) == {"check", "state", "finding", "remedy"}
            assert row["remedy"] or row["state"] in ("ok", "not checked"), row

    def states(self, check: str) -> list[str]:
        return [row["state"] for row in self.rows if row["check"] == check]

    def faults(self) -> set[str]:
        """The checks with a result that is wrong or to be looked at."""
        return {row["check"] for row in self.rows if row["state"] in ("wrong", "look")} - ELSEWHERE

    def says(self, check: str, state: str, finding: str, remedy: str = "") -> bool:
        return any(
            (row["check"], row["state"]) == (check, state) and finding in row["finding"] and remedy in row["remedy"]
            for row in self.rows
        )


@pytest.mark.slow
def test_a_host_that_is_well_and_its_faults_one_by_one(tmp_path: Path, net: Net) -> None:
    with net.daemon("a", tmp_path) as daemon:
        found = Found(daemon)
        assert (found.status, found.faults()) == (0, set()), found.rows
        assert found.states("round trip") == ["ok", "ok"]
        assert found.says("round trip", "ok", "10.77.0.255#5400")
        assert found.says("interface", "ok", "10.77.0.1/24")
        assert found.says("port", "ok", f"(pid {daemon.pid})")
        assert found.says("keys", "ok", "0600")

        net.run("a", "nft", "add table inet loss")
        net.run("a", "nft", "add chain inet loss in { type filter hook input priority 0; }")
        net.run("a", "nft", f"add rule inet loss in udp dport {PORT} drop")
        found = Found(daemon)
        assert (found.status, found.faults()) == (1, {"firewall", "round trip"}), found.rows
        assert found.says("firewall", "look", "inet loss in", "nft list ruleset")
        assert found.says("round trip", "wrong", "10.77.0.255#5400")
        net.run("a", "nft", "delete table inet loss")

        daemon.signal(signal.SIGSTOP)
        found = Found(daemon)
        daemon.signal(signal.SIGCONT)
        assert found.status == 1
        assert found.says("daemon", "wrong", "SIGSTOP", "kill -CONT")
        assert found.states("round trip") == ["not checked"]


def test_the_output_for_people_has_remedies(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", start=False)
    done = run(daemon)
    assert done.returncode == 1
    assert str(daemon.bus) in done.stdout
    assert "remedy: " in done.stdout
    assert "\x1b" not in done.stdout
