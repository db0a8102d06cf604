"""Reports of real daemons: each host knows the losses of all others; forged reports change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bccnd.core.trust.signatures import generate, public_of
from tests.e2e.harness import KEY, Daemon, Wire, datagram, payloads, wait
from tests.e2e.shared import await_link, known_to

HOSTS = ("relay01", "relay02", "relay03")
INTERVAL = "200ms"
#: the first number of a source
FIRST = 10**15


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    """Three daemons on one segment, which report often; the last test ends two of them."""
    folder = tmp_path_factory.mktemp("fleet")
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
        wait(lambda: all(len(known_to(one)["hosts"]) == 3 for one in daemons), "all to know each other")
        yield daemons
    finally:
        for daemon in daemons:
            daemon.stop()


def seen_by(daemon: Daemon, *options: str) -> dict[str, list[dict[str, Any]]]:
    done = daemon.tool("fleet", "--json", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def test_each_host_knows_what_every_other_has_received(fleet: list[Daemon]) -> None:
    hosts = seen_by(fleet[0])["hosts"]
    assert [one["host"] for one in hosts] == list(HOSTS)
    assert all(one["keys"]["algorithm"] == "hmac" and len(one["keys"]["fingerprints"]) == 1 for one in hosts)
    with fleet[0].connect() as client:
        for number in range(100):
            client.publish("demo/x", b"%d" % number)
    for daemon in fleet:  # on each host the same is known, beside the reports themselves
        await_link(daemon, "relay03", "relay01", received=100)
    wait(lambda: fleet[0].metric("reported_messages_total", direction="sent") >= 200)
    assert fleet[0].metric("reported_lost_total", direction="sent") == 0
    assert fleet[0].metric("fleet_hosts") == 3
    assert seen_by(fleet[0], "--for", "1m")["findings"] == []
    (key,) = map(json.loads, fleet[0].tool("keys", "--fleet", "--json").stdout.splitlines())
    assert (key["signs"], key["lacks"]) == (list(HOSTS), [])
    page = json.loads(fleet[1].page("/fleet.json"))
    assert ({one["host"] for one in page["hosts"]}, page["findings"]) == (set(HOSTS), [])
    # No client may report for its host.
    done = fleet[0].tool("pub", "bccn/report/relay01", "report 1 1.0.0 200 1 1")
    assert (done.returncode, b"reserved" in done.stderr) == (3, True)
    with Wire(fleet[0].port) as wire:
        forged = b"report 1 9.9.9 200 1 1\nheard relay03 1 5 999999 0 0\n"
        wire.send(datagram("relay03/app/7", 1, "bccn/report/relay02", forged, KEY))
        wait(lambda: fleet[0].metric("reports_refused_total", reason="wrong_sender") == 1)
    found = seen_by(fleet[0])
    assert all(one["version"] != "9.9.9" for one in found["hosts"])
    assert not any(one["lost"] for one in found["links"])


def test_a_loss_is_known_on_every_host_with_its_place(fleet: list[Daemon]) -> None:
    """A gap, an outage of 20,000 numbers, and the tail of a burst that only its sender's report tells of."""

    def tell(number: int, following: int) -> bytes:
        text = f"report 1 1.0.0 200 1 1\nsent plant/app/7 {FIRST} {following}\n"
        return datagram("plant/bccnd/1", number, "bccn/report/plant", text.encode(), KEY)

    def messages(*numbers: int) -> list[bytes]:
        return [datagram("plant/app/7", number, "demo/x", b"x", KEY) for number in numbers]

    following = FIRST + 20_001
    with Wire(fleet[0].port) as wire:
        wire.send(tell(1, FIRST), *messages(FIRST, following), *messages(*range(following + 1, following + 1001)))
        wire.send(tell(2, following + 2001))
        for daemon in fleet:
            wait(lambda daemon=daemon: daemon.metric("messages_lost_total") == 21_000)  # type: ignore[misc]
            assert daemon.metric("source_jumps_total") == 0
        wire.send(tell(3, following + 2001))
        for daemon in fleet:
            for receiver in HOSTS:
                await_link(daemon, receiver, "plant", lost=21_000)
            assert daemon.metric("messages_missing") == 0
    (finding,) = [one for one in seen_by(fleet[2])["findings"] if one["kind"] == "sender_lost"]
    assert finding["about"] == ["plant"]
    assert b" of what plant sends is lost" in fleet[1].tool("fleet").stdout
    matrix = [line.split() for line in fleet[0].tool("fleet", "--matrix").stdout.decode().splitlines()]
    assert matrix[0][3:] == ["plant", *HOSTS]
    assert [line[0] for line in matrix[1:]] == list(HOSTS)
    top = json.loads(fleet[1].tool("top", "--once", "--json", "--interval", "0.1").stdout)
    assert [(one["receiver"], one["lost"]) for one in top["worst_links"]] == [(host, 21_000) for host in HOSTS]
    # A host that stops says so; one that is killed is silent.
    fleet[1].stop()
    fleet[2].kill()

    def silent() -> set[str]:
        found = known_to(fleet[0])["findings"]
        return {host for one in found if "silent" in one["kind"] for host in one["about"]} - {"plant"}

    wait(lambda: silent() == {"relay03"}, "the silence")


@pytest.mark.parametrize("before", ["sig", "hmac"])
def test_without_a_key_to_sign_with_reports_end(tmp_path: Path, before: str) -> None:
    """The last one is signed, so that others believe that no other follows."""
    daemon = Daemon(tmp_path / "a", {"reports": {"interval": INTERVAL}}, start=False)
    key, public = daemon.folder / "own", daemon.folder / "own.pub"
    private = generate()
    for path, data in ((key, private), (public, public_of(private))):
        path.write_bytes(data)
        path.chmod(0o600)
    signs = {"algorithm": "sig", "keys": [str(key)], "signers": {"relay01": [str(public)]}}
    daemon.configure({"integrity": signs if before == "sig" else daemon.with_key(KEY)})
    daemon.start()
    with daemon, daemon.connect("x/") as client, Wire(daemon.port) as wire:
        wait(lambda: daemon.metric("reports_sent_total") > 0)
        daemon.configure({"integrity": {**signs, "keys": []}, "dedup": {"horizon": "3s"}})
        daemon.reload()
        last = wire.receive(b" 0 1 1\n")
        assert f":{before}=".encode() in last.partition(b"]")[0]
        assert daemon.metric("config_reloads_total", result="applied") == 1
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
