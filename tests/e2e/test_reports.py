"""Reports of real daemons: each host knows the losses of all others; forged reports change nothing."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import bccnd
from bccnd.cli.shared.connection import fetch_listing
from bccnd.core.trust.integrity_algorithms import fingerprint
from bccnd.core.trust.signatures import generate, public_of
from tests.e2e.harness import KEY, Daemon, Wire, datagram, payloads, wait
from tests.e2e.shared import in_force

HOSTS = ("relay01", "relay02", "relay03")
INTERVAL = "200ms"


@contextmanager
def running(folder: Path) -> Iterator[list[Daemon]]:
    """Three daemons on one segment, which report often."""
    daemons: list[Daemon] = []
    try:
        for host in HOSTS:
            settings: dict[str, Any] = {"host": host, "reports": {"interval": INTERVAL}}
            if daemons:
                settings["segments"] = daemons[0].settings["segments"]
            daemon = Daemon(folder / host, settings, start=False)
            daemon.configure({"integrity": daemon.with_key(KEY)})
            daemons.append(daemon)
            daemon.start()
        know_each_other(daemons)
        yield daemons
    finally:
        for daemon in daemons:
            daemon.stop()


def know_each_other(daemons: list[Daemon]) -> None:
    wait(lambda: all(len(known_to(one)["hosts"]) == 3 for one in daemons), "all to know each other")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[list[Daemon]]:
    """Daemons of one test, which may do anything to them."""
    with running(tmp_path) as daemons:
        yield daemons


@pytest.fixture(scope="module")
def _healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    with running(tmp_path_factory.mktemp("healthy")) as daemons:
        yield daemons


@pytest.fixture
def healthy(_healthy: list[Daemon]) -> list[Daemon]:
    """Daemons of several tests, none of which loses a message or leaves a setting behind."""
    know_each_other(_healthy)
    return _healthy


def known_to(daemon: Daemon) -> dict[str, list[dict[str, Any]]]:
    """What `seen_by` shows; to be asked often, as it starts no program."""
    found: dict[str, list[dict[str, Any]]] = {"hosts": [], "links": [], "findings": []}
    with bccnd.connect(str(daemon.bus)) as bus:
        for row in fetch_listing(bus, "fleet"):
            for name, item in row.items():
                found[name].append(item)
    return found


def seen_by(daemon: Daemon, *options: str) -> dict[str, list[dict[str, Any]]]:
    done = daemon.tool("fleet", "--json", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def link(daemon: Daemon, receiver: str, sender: str) -> dict[str, Any]:
    rows = [one for one in known_to(daemon)["links"] if (one["receiver"], one["sender"]) == (receiver, sender)]
    return rows[0] if rows else {"received": 0, "lost": 0, "late": 0}


def test_each_host_knows_what_every_other_has_received(healthy: list[Daemon]) -> None:
    hosts = seen_by(healthy[0])["hosts"]
    assert [one["host"] for one in hosts] == list(HOSTS)
    assert len({one["version"] for one in hosts}) == 1
    assert all(one["keys"]["algorithm"] == "hmac" and len(one["keys"]["fingerprints"]) == 1 for one in hosts)
    with healthy[0].connect() as client:
        for number in range(100):
            client.publish("demo/x", b"%d" % number)
    for daemon in healthy:  # on each host the same is known, beside the reports themselves
        wait(lambda daemon=daemon: link(daemon, "relay03", "relay01")["received"] >= 100)  # type: ignore[misc]
    assert healthy[0].tool("fleet", "--sent").returncode == 0
    wait(lambda: healthy[0].metric("reported_messages_total", direction="sent") >= 200)
    assert healthy[0].metric("reported_lost_total", direction="sent") == 0
    assert healthy[0].metric("fleet_hosts") == 3
    assert seen_by(healthy[0], "--for", "1m")["findings"] == []
    with urllib.request.urlopen(f"{healthy[1].url}/fleet.json") as answer:
        page = json.load(answer)
    assert {one["host"] for one in page["hosts"]} == set(HOSTS)
    assert page["findings"] == []


def test_a_loss_is_seen_on_every_host_with_its_place(fleet: list[Daemon]) -> None:
    with Wire(fleet[0].port) as wire:
        for number in range(1, 1000, 2):  # every second message of another program is missing
            wire.send(datagram("plant/sensor/7", number, "demo/x", b"x", KEY))
    for daemon in fleet:
        wait(lambda daemon=daemon: all(link(daemon, host, "plant")["lost"] == 499 for host in HOSTS))  # type: ignore[misc]
    (finding,) = seen_by(fleet[2])["findings"]
    assert (finding["kind"], finding["about"]) == ("sender_lost", ["plant"])
    assert finding["text"] in fleet[1].tool("fleet").stdout.decode()
    matrix = [line.split() for line in fleet[0].tool("fleet", "--matrix").stdout.decode().splitlines()]
    assert matrix[0] == ["receiver", "\\", "sender", "plant", *HOSTS]
    assert [line[:3] for line in matrix[1:]] == [[host, "50", "%"] for host in HOSTS]
    top = json.loads(fleet[1].tool("top", "--once", "--json", "--interval", "0.1").stdout)
    assert [(one["receiver"], one["lost"]) for one in top["worst_links"]] == [(host, 499) for host in HOSTS]


def test_a_long_outage_and_the_tail_of_a_burst_are_lost_exactly_on_every_host(fleet: list[Daemon]) -> None:
    first = 10**15

    def tell(number: int, following: int) -> bytes:
        text = f"report 1 1.0.0 200 1 1\nsent plant/app/7 {first} {following}\n"
        return datagram("plant/bccnd/1", number, "bccn/report/plant", text.encode(), KEY)

    with Wire(fleet[0].port) as wire:
        wire.send(tell(1, first), datagram("plant/app/7", first, "demo/x", b"x", KEY))
        # 20,000 numbers of an outage, one message, and 2,000 more of which only the first half arrives
        following = first + 20_001
        wire.send(datagram("plant/app/7", following, "demo/x", b"x", KEY))
        for number in range(following + 1, following + 1001):
            wire.send(datagram("plant/app/7", number, "demo/x", b"x", KEY))
        wire.send(tell(2, following + 2001))
        for daemon in fleet:
            wait(lambda daemon=daemon: daemon.metric("messages_lost_total") == 21_000)  # type: ignore[misc]
            assert daemon.metric("source_jumps_total") == 0
        wire.send(tell(3, following + 2001))
        for daemon in fleet:
            for receiver in HOSTS:
                wait(lambda daemon=daemon, receiver=receiver: link(daemon, receiver, "plant")["lost"] == 21_000)  # type: ignore[misc]
            assert daemon.metric("messages_missing") == 0


def test_the_hosts_that_sign_with_each_key_are_known_while_it_is_changed(healthy: list[Daemon]) -> None:
    second = b"another key, as long as it has to be"
    old, new = fingerprint(KEY), fingerprint(second)

    def holders() -> list[tuple[str, list[str], list[str], list[str]]]:
        rows = map(json.loads, healthy[0].tool("keys", "--fleet", "--json").stdout.splitlines())
        return [(row["fingerprint"], row["signs"], row["verifies"], row["lacks"]) for row in rows]

    wait(lambda: holders() == [(old, list(HOSTS), [], [])])
    with ExitStack() as both:
        for daemon in healthy[:2]:
            both.enter_context(in_force(daemon, integrity=daemon.with_key(KEY, second)))
        wait(lambda: holders() == [(old, list(HOSTS), [], []), (new, [], ["relay01", "relay02"], ["relay03"])])
        shown = healthy[2].tool("keys", "--fleet").stdout.decode().splitlines()
        assert [line.split()[:2] for line in shown[1:]] == [[old, "hmac"], [new, "hmac"]]
    wait(lambda: holders() == [(old, list(HOSTS), [], [])])


def test_a_host_that_stops_says_so_and_one_that_is_killed_is_silent(fleet: list[Daemon]) -> None:
    fleet[1].stop()
    fleet[2].kill()
    wait(lambda: [one["about"] for one in known_to(fleet[0])["findings"]] == [["relay03"]])
    assert fleet[0].metric("fleet_hosts_silent") == 1


def test_a_forged_report_changes_nothing_and_is_counted(fleet: list[Daemon]) -> None:
    daemon = fleet[0]
    lines = "report 1 9.9.9 200 1 1\nheard relay03 1 5 999999 0 0\n"
    with Wire(daemon.port) as wire:
        wire.send(datagram("relay09/bccnd/7", 1, "bccn/report/relay02", lines.encode(), KEY))
        wire.send(datagram("relay02/app/7", 1, "bccn/report/relay02", lines.encode(), KEY))
        wire.send(datagram("relay01/bccnd/7", 1, "bccn/report/relay01", lines.encode(), KEY))
        wire.send(datagram("relay09/bccnd/8", 1, "bccn/report/relay09", b"nonsense", KEY))
        wire.send(datagram("relay02/bccnd/7", 1, "bccn/report/relay02", lines.encode(), b"another key of 16"))
    wait(lambda: daemon.metric("reports_refused_total", reason="wrong_sender") == 3)
    wait(lambda: daemon.metric("reports_refused_total", reason="bad_format") == 1)
    found = seen_by(daemon)
    assert {one["host"] for one in found["hosts"]} == set(HOSTS)
    assert all(one["version"] != "9.9.9" for one in found["hosts"])
    assert not any(one["lost"] for one in found["links"])


def test_a_host_cannot_report_for_sources_of_another_and_their_losses_still_count(fleet: list[Daemon]) -> None:
    daemon = fleet[0]
    first = 10**15
    lines = f"report 1 9.9.9 200 1 1\nsent other/app/1 5 9\nsent plant/app/7 {first} {first + 1_000_000}\n"
    with Wire(daemon.port) as wire:
        wire.send(datagram("plant/app/7", first, "demo/x", b"x", KEY))
        wire.send(datagram("other/bccnd/1", 1, "bccn/report/other", lines.encode(), KEY))
        wait(lambda: daemon.metric("reports_refused_total", reason="wrong_sender") == 1)
        wire.send(datagram("plant/app/7", first + 3, "demo/x", b"x", KEY))
        wait(lambda: daemon.metric("messages_lost_total") >= 2)
    assert daemon.metric("messages_lost_total") == 2
    assert {one["host"] for one in seen_by(daemon)["hosts"]} == set(HOSTS)


def test_no_client_may_report_for_its_host(healthy: list[Daemon]) -> None:
    done = healthy[0].tool("pub", "bccn/report/relay01", "report 1 1.0.0 200 1 1")
    assert done.returncode == 3
    assert b"reserved" in done.stderr


def test_without_an_interval_nothing_is_sent_and_reports_of_others_are_read(healthy: list[Daemon]) -> None:
    quiet = healthy[0]
    with in_force(quiet, reports={"interval": 0}):
        sent = quiet.metric("reports_sent_total")
        received = quiet.metric("reports_received_total")
        wait(lambda: quiet.metric("reports_received_total") > received + 4)
        assert quiet.metric("reports_sent_total") == sent
        assert seen_by(healthy[1])["findings"] == []  # it has said that it stops


def with_signature(daemon: Daemon, private: bytes) -> dict[str, Any]:
    """The integrity section of a host that signs with a key of its own, and knows no other one."""
    key, public = daemon.folder / "own", daemon.folder / "own.pub"
    key.write_bytes(private)
    key.chmod(0o600)
    public.write_bytes(public_of(private))
    return {"algorithm": "sig", "keys": [str(key)], "signers": {"relay01": [str(public)]}}


@pytest.mark.parametrize("before", ["sig", "hmac"])
def test_a_reload_without_a_key_to_sign_with_ends_the_reports_and_nothing_else(tmp_path: Path, before: str) -> None:
    daemon = Daemon(tmp_path / "a", {"reports": {"interval": INTERVAL}}, start=False)
    signs = with_signature(daemon, generate())
    daemon.configure({"integrity": signs if before == "sig" else daemon.with_key(KEY)})
    daemon.start()
    with daemon, daemon.connect("x/") as client, Wire(daemon.port) as wire:
        wait(lambda: daemon.metric("reports_sent_total") > 0)
        daemon.configure({"integrity": {**signs, "keys": []}, "dedup": {"horizon": "3s"}})
        assert "receives" in daemon.check()
        daemon.reload()
        # The last report is signed, so that others believe that no other follows.
        last = wire.receive(b" 0 1 1\n")
        assert f":{before}=".encode() in last.partition(b"]")[0]
        assert daemon.metric("config_reloads_total", result="applied") == 1
        assert "receives" in daemon.output().splitlines()[-1]
        client.publish("x/y", b"here only")
        assert payloads(client, 1) == [b"here only"]
        assert daemon.metric("client_errors_total", reason="no_signing_key") == 1
        sent = daemon.metric("reports_sent_total")
        # As soon as there is a key again, both go on.
        daemon.configure({"integrity": signs})
        daemon.reload()
        wait(lambda: daemon.metric("reports_sent_total") > sent)
        client.publish("x/y", b"for all")
        assert b":sig=" in wire.receive(b"|for all")
