"""Five hosts with known faults between them: each host names the faults and no other, and every loss is counted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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

    def listed(self, host: str, topic: str, kind: str = "") -> list[dict[str, Any]]:
        """Rows of a listing of a host, of one kind where it has several."""
        rows = list(fetch_listing(self.clients[host], topic))
        return [row[kind] for row in rows if kind in row] if kind else rows

    def hosts_known(self, host: str) -> int:
        return len(self.listed(host, "hosts"))

    def findings(self, host: str) -> set[tuple[str, ...]]:
        return {(one["kind"], *one["about"]) for one in self.listed(host, "fleet", "findings")}

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

    def owed(self, receiver: str, sender: str) -> int:
        """What a host has received and lost of another one, as it knows itself."""
        rows = self.listed(receiver, "fleet", "links")
        about = f"host-{receiver}", f"host-{sender}"
        return sum(row["received"] + row["lost"] for row in rows if (row["receiver"], row["sender"]) == about)

    def lost(self, host: str) -> int:
        return int(self.listed(host, "daemon")[0]["lost"])

    def sent(self, host: str) -> int:
        return int(self.listed(host, "daemon")[0]["sent"])

    def lost_of(self, sender: str, viewer: str) -> int:
        """What all hosts have lost of one, as another one knows it."""
        links = self.listed(viewer, "fleet", "links")
        return sum(row["lost"] for row in links if row["sender"] == f"host-{sender}")

    def accounts(self, sender: str) -> dict[str, int]:
        """What each other host counts less or more than what was sent before: the same for all where nothing is
        owed."""
        return {host: self.sent(sender) - self.owed(host, sender) for host in HOSTS if host != sender}

    def settled(self, sender: str, before: dict[str, int]) -> bool:
        """Whether lost and received are what was sent, on every host."""
        sent = self.sent(sender)
        now = self.accounts(sender)
        return self.sent(sender) == sent and now == before

    def settle(self, sender: str) -> dict[str, int]:
        """Return accounts in which nothing is on its way."""
        found: list[dict[str, int]] = [{}]

        def same() -> bool:
            sent = self.sent(sender)
            found.append(self.accounts(sender))
            return self.sent(sender) == sent and found[-1] == found[-2]

        wait(same, "the fleet to be quiet")
        return found[-1]


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


def publish(client: bccnd.Connection, channel: str, count: int) -> None:
    """Publish as many messages at full speed, and wait until the daemon has sent them."""
    for number in range(count):
        client.publish(channel, b"%d" % number)
    assert client.sync(60) == []


def test_an_outage_at_full_speed_and_the_tail_of_a_burst_are_counted_on_every_host(fleet: Fleet) -> None:
    client = fleet.clients["a"]
    client.publish("demo/first", b"")  # what was sent before a source is first heard is no loss
    before = fleet.settle("a")
    fleet.net.lose(100, to="c")
    publish(client, "demo/outage", 20_000)
    fleet.net.lose(0, to="c")
    wait(lambda: fleet.settled("a", before), "every loss to be counted", 60)
    publish(client, "demo/burst", 1000)
    fleet.net.lose(100, by="a")
    publish(client, "demo/tail", 1000)
    fleet.net.lose(0, by="a")
    wait(lambda: fleet.settled("a", before), "the tail to be counted", 60)
    assert min(fleet.lost(host) for host in "bcde") >= 1000
    assert fleet.lost("c") >= 21_000
    # Each of the others knows it as well, from reports.
    wait(lambda: {fleet.lost_of("a", host) for host in "ade"} == {fleet.lost_of("a", "c")}, "the reports of it")
    assert {host: fleet.daemons[host].metric("source_jumps_total") for host in "bcde"} == dict.fromkeys("bcde", 0)
