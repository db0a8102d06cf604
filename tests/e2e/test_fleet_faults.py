"""Five hosts with known faults between them: each host names the faults and no other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import bccnd
from bccnd.cli.shared.connection import fetch_listing
from tests.e2e.harness import Daemon, wait
from tests.e2e.network import Net, ip

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]

HOSTS = "abcde"
#: seconds for five daemons that start at once on a busy machine
PATIENCE = 120.0
INTERVAL = 1.0
#: messages a second of each host, and for how many seconds
RATE = 100
SECONDS = 15


class Fleet:
    """A daemon and a program on each host."""

    def __init__(self, net: Net, folder: Path, cleanup: ExitStack) -> None:
        self.net = net
        self.daemons: dict[str, Daemon] = {}
        self.clients: dict[str, bccnd.Connection] = {}
        for host in HOSTS:
            segment: dict[str, object] = {"address": "10.77.0.255", "receive_buffer": "8MiB"}
            daemon = self.daemons[host] = net.daemon(host, folder, segment, start=False)
            daemon.patience = PATIENCE
            daemon.configure({"reports": {"interval": INTERVAL}})
            daemon.start()
            cleanup.callback(daemon.stop)
            self.clients[host] = cleanup.enter_context(daemon.connect())
        wait(
            lambda: all(self.hosts_known(host) == len(HOSTS) for host in HOSTS),
            "all hosts to know each other",
            PATIENCE,
        )

    def hosts_known(self, host: str) -> int:
        return len(list(fetch_listing(self.clients[host], "hosts")))

    def findings(self, host: str) -> set[tuple[str, ...]]:
        found = [row["findings"] for row in fetch_listing(self.clients[host], "fleet") if "findings" in row]
        return {(one["kind"], *one["about"]) for one in found}

    def printed(self, host: str) -> set[tuple[str, ...]]:
        """The same as the command prints it."""
        done = self.daemons[host].tool("fleet", "--json")
        assert done.returncode == 0, done.stderr
        return {(one["kind"], *one["about"]) for one in json.loads(done.stdout)["findings"]}

    def speak(self, seconds: float) -> None:
        """Each host sends at its rate, ten messages at once."""
        began = time.monotonic()
        for turn in range(int(seconds * RATE / 10)):
            for client in self.clients.values():
                for number in range(10):
                    client.publish("demo/x", b"%d %d" % (turn, number))
            time.sleep(max(0.0, began + (turn + 1) * 10 / RATE - time.monotonic()))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as cleanup:
        net = Net(HOSTS)
        cleanup.callback(net.close)
        net.open()
        yield Fleet(net, tmp_path, cleanup)


def test_each_host_names_each_fault_and_no_other(fleet: Fleet) -> None:
    fleet.net.lose(10, to="b")
    fleet.net.lose(10, by="c")
    fleet.net.delay("d", "400kbit")
    fleet.speak(SECONDS / 2)
    ip("-n", fleet.net.switch, "link", "set", "toe0", "down")
    fleet.speak(SECONDS / 2)
    expected = {("receiver_loses", "host-b"), ("sender_lost", "host-c"), ("host_silent", "host-e")}
    for host in "abcd":
        wait(lambda host=host: fleet.findings(host) == expected, f"the faults as {host} sees them", 30)  # type: ignore[misc]
    assert ("host_silent", "host-e") in fleet.findings("e")
    fleet.speak(5)
    assert {host: fleet.findings(host) for host in "abcd"} == dict.fromkeys("abcd", expected)
    assert fleet.printed("a") == expected


def test_a_fleet_without_faults_has_no_findings(fleet: Fleet) -> None:
    fleet.speak(5)
    assert {host: fleet.findings(host) for host in HOSTS} == {host: set() for host in HOSTS}
