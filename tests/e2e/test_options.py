"""Options of the configuration that no other file shows, through the real daemon."""

from __future__ import annotations

import grp
import os
import re
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

import bccnd
from tests.e2e.harness import BIN, KEY, Daemon, Wire, acting_as, datagram, payloads, wait
from tests.e2e.shared import Since, in_force, new_src
from tests.e2e.starting import refused
from tests.support import BROADCAST, free_port, need_root

#: the dialects of sockets, and a pattern for each
DIALECTS: Final = {"sbus-dot": "a.", "broker": "a/+/c", "sbus": "a/>"}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with two segments, and sockets of all dialects and of several modes."""
    folder = tmp_path_factory.mktemp("options")
    segments = [{"address": BROADCAST, "port": free_port(), "name": name} for name in ("shop floor", "other")]
    group = grp.getgrgid(os.getgroups()[0] if os.getgroups() else 0).gr_name
    sockets = [{"path": str(folder / dialect), "dialect": dialect} for dialect in DIALECTS]
    modes: dict[str, dict[str, str]] = {"owner": {"mode": "0600"}, "group": {"group": group}, "all": {"mode": "0666"}}
    sockets += [{"path": f"@{folder}-{name}", **mode} for name, mode in modes.items()]
    settings = {"host": "kiosk-3.lan", "segments": segments, "bus": {"sockets": sockets}}
    with Daemon(folder / "a", settings) as one:
        yield one
    assert not [path for path in folder.iterdir() if path.is_socket()]


@pytest.fixture
def since(daemon: Daemon) -> Since:
    return Since(daemon)


@pytest.fixture
def src() -> str:
    return new_src()


def test_messages_come_from_and_go_to_each_segment_under_the_name_of_the_host(
    daemon: Daemon, since: Since, src: str
) -> None:
    ports = [one["port"] for one in daemon.settings["segments"]]
    with daemon.connect("x") as client, Wire(ports[0]) as one, Wire(ports[1]) as two:
        comm = Path("/proc/self/comm").read_text().strip().replace("/", "_")
        assert client.identity() == f"kiosk-3.lan/{comm}/{os.getpid()}"
        one.send(datagram(src, 1, "x", b"first"))
        assert payloads(client, 1) == [b"first"]
        two.send(datagram(src, 1, "x", b"first"), datagram(src, 2, "x", b"second"))
        assert payloads(client, 1) == [b"second"]
        client.publish("x", b"ours")
        assert one.hear(b"ours") == two.hear(b"ours")
        wait(lambda: since.verdicts() == {"accepted": 2, "duplicate": 1, "looped": 2})
        assert daemon.metric("datagrams_sent_total", segment="shop floor") == 1


def test_each_algorithm_lets_its_own_in_and_nothing_else(tmp_path: Path) -> None:
    """A daemon hears another one of its own kind, and none of another kind."""
    with Daemon(tmp_path / "a") as speaker:
        assert speaker.tool("keygen", "--algorithm", "sig", str(tmp_path / "key")).returncode == 0
        kinds: dict[str, dict[str, Any]] = {
            "none": {"algorithm": "none"},
            "crc32": {"algorithm": "crc32"},
            "hmac": speaker.with_key(KEY),
            "sig": {"algorithm": "sig", "keys": [f"{tmp_path}/key"], "signers": {"": [f"{tmp_path}/key.pub"]}},
        }
        settings = {"host": "twin", "segments": speaker.settings["segments"]}
        with Daemon(tmp_path / "b", settings) as listener, speaker.connect() as client:
            for spoken, understood in product(kinds, kinds):
                with in_force(speaker, integrity=kinds[spoken]), in_force(listener, integrity=kinds[understood]):
                    here, there = Since(speaker), Since(listener)
                    client.publish("x", b"hello")
                    assert client.sync() == []
                    wait(lambda: here.verdicts() == {"looped": 1})  # noqa: B023
                    unknown = "integrity_missing" if spoken == "none" else "integrity_unknown"
                    verdict = "accepted" if spoken == understood else unknown
                    wait(lambda: there.verdicts() == {verdict: 1}, f"{understood} to hear {spoken}")  # noqa: B023


def test_a_leap_is_loss_below_sanity_and_a_new_beginning_from_there_on(daemon: Daemon, src: str) -> None:
    with in_force(daemon, dedup={"sanity": 16}), Wire(daemon.port) as wire:
        since = Since(daemon)
        restarts, jumps = (daemon.metric(f"source_{name}_total") for name in ("restarts", "jumps"))
        wire.send(*(datagram(src, seq, "x") for seq in (100, 115)))
        wait(lambda: daemon.metric("messages_missing") == 14)
        wire.send(datagram(src, 131, "x"))
        wait(lambda: daemon.metric("source_jumps_total") == jumps + 1)
        wire.send(datagram(src, 115, "x"))
        wait(lambda: since.verdicts() == {"accepted": 3, "restart": 1})
        assert daemon.metric("source_restarts_total") == restarts + 1


def test_after_the_horizon_what_is_missing_is_lost_and_an_old_number_is_a_restart(daemon: Daemon, src: str) -> None:
    with in_force(daemon, dedup={"horizon": "300ms"}), Wire(daemon.port) as wire:
        since, lost = Since(daemon), daemon.metric("messages_lost_total")
        wire.send(datagram(src, 1, "x"), datagram(src, 4, "x"))
        wait(lambda: daemon.metric("messages_lost_total") == lost + 2)
        assert daemon.metric("messages_missing") == 0
        wire.send(datagram(src, 4, "x"))
        wait(lambda: since.verdicts() == {"accepted": 2, "restart": 1})


@pytest.mark.parametrize(("late", "verdict"), [("drop", "stale"), ("deliver", "reordered")])
def test_what_was_overtaken_is_dropped_or_delivered_once(daemon: Daemon, src: str, late: str, verdict: str) -> None:
    rules = {"late": late, "horizon": "30s"}
    with in_force(daemon, dedup=rules), daemon.connect("x") as client, Wire(daemon.port) as wire:
        since, lost = Since(daemon), daemon.metric("messages_lost_total")
        wire.send(*(datagram(src, seq, "x", b"%d" % seq) for seq in (1, 3, 2, 2, 4)))
        wanted = [b"1", b"3", b"2", b"4"] if late == "deliver" else [b"1", b"3", b"4"]
        assert payloads(client, len(wanted)) == wanted
        wait(lambda: since.verdicts() == {"accepted": 3, verdict: 1, "duplicate": 1})
        assert (daemon.metric("messages_missing"), daemon.metric("messages_lost_total")) == (0, lost)


def test_a_silent_source_is_forgotten_in_time(tmp_path: Path) -> None:
    rules = {"expire": "300ms", "horizon": "100ms", "max_sources": 3}
    with Daemon(tmp_path / "a", {"dedup": rules}) as daemon, Wire(daemon.port) as wire:
        wire.send(*(datagram(f"host/{number}", 1, "x") for number in range(5)))
        wait(lambda: daemon.metric("sources_forgotten_total", cause="evicted") == 2)
        wait(lambda: daemon.metric("sources_forgotten_total", cause="expired") == 3)
        assert daemon.metric("sources") == 0


def test_several_sockets_serve_one_bus_each_in_its_dialect(daemon: Daemon) -> None:
    with daemon.connect("a/>") as first:
        before = daemon.metric("clients")
        others = {dialect: bccnd.connect(str(daemon.folder.parent / dialect)) for dialect in DIALECTS}
        for dialect, pattern in DIALECTS.items():
            others[dialect].subscribe(pattern)
            assert others[dialect].sync() == []
        for key in ("a/b/c", "a.b.c", "a/>"):
            first.publish(key, key)
        wanted = {"sbus-dot": [b"a.b.c"], "broker": [b"a/b/c"], "sbus": [b"a/>"]}
        for dialect, client in others.items():
            assert payloads(client, 1) == wanted[dialect]
        assert payloads(first, 2) == [b"a/b/c", b"a/>"]
        others["broker"].publish("a.x", "from one to another")
        assert payloads(others["sbus-dot"], 1) == [b"from one to another"]
        assert daemon.metric("clients") == before + 3
        for client in others.values():
            assert client.sync() == []
            assert client.receive(0) is None
            client.close()


def test_the_bus_has_the_configured_dialect_group_and_mode(tmp_path: Path) -> None:
    group = next(one for one in grp.getgrall() if one.gr_gid not in (0, os.getegid()))
    bus = {"dialect": "sbus-dot", "mode": "0600", **({"group": group.gr_name} if os.geteuid() == 0 else {})}
    with Daemon(tmp_path / "a", {"bus": bus}) as daemon, daemon.connect("a.*.c", "end") as client:
        for chan in ("a.b.c", "a.b/c.d", "end"):
            client.publish(chan, chan)
        assert payloads(client, 2) == [b"a.b.c", b"end"]
        info = daemon.bus.stat()
        assert stat.S_IMODE(info.st_mode) == 0o600
        assert info.st_gid == (group.gr_gid if os.geteuid() == 0 else os.getegid())


def test_the_mode_of_an_abstract_address_holds_though_it_has_no_file(daemon: Daemon) -> None:
    need_root("clients of several users")
    group, user = os.getgroups()[0] if os.getgroups() else 0, 61_001
    who = [(user,), (user, user, group), (0,)]
    may = {"owner": [False, False, True], "group": [False, True, True], "all": [True, True, True]}
    before = daemon.metric("clients_refused_total", reason="not_admitted")
    for address, expected in may.items():
        for one, permitted in zip(who, expected, strict=True):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                with acting_as(*one):
                    sock.connect(f"\0{daemon.folder.parent}-{address}")
                sock.settimeout(10)
                if permitted:
                    sock.send(b"CMSG !/bccn/sync")
                answer = b"CMSG !/bccn/sync\0" if permitted else b"CMSG !/bccn/error\0not_admitted "
                assert sock.recv(100) == answer, (address, one)
    assert daemon.metric("clients_refused_total", reason="not_admitted") == before + 3
    command: list[str | Path] = [BIN / "bccn", "--socket", f"@{daemon.folder.parent}-all", "pub", "a", "b"]
    assert subprocess.run(command, check=False, timeout=20).returncode == 0


def test_a_bus_may_be_an_inherited_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "ours.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        daemon = Daemon(tmp_path / "d", {"bus": {"path": f"/dev/fd/{listener.fileno()}"}}, start=False)
        command = [str(BIN / "bccnd"), "--config", str(daemon.config)]
        with (
            daemon.log.open("ab") as log,
            subprocess.Popen(command, stderr=log, pass_fds=[listener.fileno()]) as process,
        ):
            wait(lambda: "ready" in daemon.said(), "the daemon to be ready")
            with bccnd.connect(str(path)) as client:
                client.subscribe("a")
                client.publish("a", "through a socket that others opened")
                assert payloads(client, 1) == [b"through a socket that others opened"]
            process.terminate()
            assert process.wait(20) == 0
        assert path.is_socket(), "it is not the daemon's to remove"
        assert "cannot use the inherited descriptor" in refused(daemon)


def test_queues_are_capped_in_bytes_and_patterns_in_number(daemon: Daemon) -> None:
    limits = {"queue": {"messages": 1_000_000, "bytes": "16KiB"}, "max_subscriptions": 3}
    with in_force(daemon, bus={**daemon.settings["bus"], **limits}), daemon.connect("x") as slow:
        with daemon.connect("a", "b", "c") as client:
            client.subscribe("d")
            assert client.sync() == [bccnd.Refusal("too_many_subscriptions", "d")]
            client.unsubscribe("a")
            client.subscribe("d")
            for _ in range(2000):
                client.publish("x", b"z" * 1000)
            assert client.sync() == []
        dropped = daemon.metric("deliveries_dropped_total", reason="queue_bytes")
        assert dropped > 0
        assert daemon.metric("queue_bytes") <= 16 << 10
        got = 0
        while got + slow.lost < 2000:
            got += isinstance(slow.receive(5), bccnd.Message)
        assert slow.lost == dropped


def test_channels_are_counted_by_their_groups_and_groups_can_be_reloaded(daemon: Daemon, src: str) -> None:
    listen = {"listen": daemon.settings["metrics"]["listen"]}
    with Wire(daemon.port) as wire:
        with in_force(daemon, metrics={**listen, "groups": {"cards": "cards/>", "all": ""}}):
            wire.send(datagram(src, 1, "cards/tx", b"12345"), datagram(src, 2, "logs", b"678"))
            wait(lambda: daemon.metric("channel_messages_total", group="all") == 2)
            assert daemon.metric("channel_messages_total", group="cards") == 1
            assert daemon.metric("channel_bytes_total", group="all") == 8
        with in_force(daemon, metrics={**listen, "groups": {"logs": "logs"}}):
            wire.send(datagram(src, 3, "logs", b"9"))
            wait(lambda: daemon.metric("channel_messages_total", group="logs") == 1)


def test_who_speaks_under_the_name_of_a_local_program_is_reported_once_and_counted(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon, daemon.connect("x") as client, Wire(daemon.port) as wire:
        client.publish("x", b"mine")
        assert payloads(client, 1) == [b"mine"]
        wait(lambda: daemon.verdicts() == {"looped": 1})
        assert daemon.metric("identity_conflicts_total") == 0
        wire.send(*(datagram(client.identity(), seq, "x", b"not mine") for seq in (1, 2, 3)))
        wait(lambda: daemon.verdicts() == {"looped": 4})
        assert daemon.metric("identity_conflicts_total") == 3
        assert daemon.said().count("identity conflict") == 1
        assert client.identity() in daemon.said()
        assert client.sync() == []
        assert client.receive(0) is None


def test_metrics_may_be_off(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", start=False)
    where = daemon.settings["metrics"]["listen"]
    daemon.configure({"metrics": {"listen": "off"}})
    daemon.start()
    with daemon, daemon.connect("x") as client, socket.socket() as visitor:
        client.publish("x", b"y")
        assert payloads(client, 1) == [b"y"]
        with pytest.raises(ConnectionRefusedError):
            visitor.connect((where.split(":")[0], int(where.split(":")[1])))


def changes(client: bccnd.Connection, count: int) -> list[tuple[str, bytes]]:
    """The next changes that a client is told of: who, and what."""
    found: list[tuple[str, bytes]] = []
    while len(found) < count:
        event = client.receive(20)
        assert isinstance(event, bccnd.Message), f"only {found}"
        if event.chan.startswith("!/bccn/liveness/"):
            found.append((event.chan.removeprefix("!/bccn/liveness/"), event.payload))
    return found


def sources(daemon: Daemon) -> dict[str, str]:
    """Who was heard, and in what state they are."""
    found = daemon.tool("sources", "--json").stdout.decode()
    return dict(re.findall(r'"src": "(.*?)", "state": "(.*?)"', found))


@pytest.mark.slow
def test_a_host_that_dies_is_missed_by_the_others_and_found_again(tmp_path: Path) -> None:
    # So long is who is missed silent before it is dead that the silence is seen on the busiest of machines.
    beating = {"heartbeat": {"interval": "200ms", "dead_after": 10}}
    watcher, other = Daemon(tmp_path / "a", beating), Daemon(tmp_path / "b", start=False)
    other.configure({"host": "relay02", "segments": watcher.settings["segments"], **beating})
    with watcher, other, watcher.connect("!/bccn/liveness/", "heartbeat/") as client:
        other.start()
        assert other.process is not None
        name = f"relay02/bccnd/{other.process.pid}"
        assert changes(client, 1) == [(name, b"alive")]
        assert sources(watcher) == {name: "alive"}
        assert watcher.metric("sources_alive") == 1
        # Ours are there for local programs too.
        heard: set[str] = set()
        while len(heard) < 2:
            event = client.receive(20)
            assert isinstance(event, bccnd.Message)
            heard.add(event.chan)
        assert watcher.process is not None
        assert heard == {f"heartbeat/{name}", f"heartbeat/relay01/bccnd/{watcher.process.pid}"}
        other.signal(signal.SIGKILL)
        assert other.process.wait() == -signal.SIGKILL
        assert changes(client, 2) == [(name, b"silent"), (name, b"dead")]
        assert sources(watcher) == {name: "dead"}
        assert watcher.metric("source_deaths_total") == 1
        assert watcher.metric("sources") == watcher.metric("sources_silent") == watcher.metric("sources_alive") == 0
        other.start()
        name = f"relay02/bccnd/{other.process.pid}"
        assert changes(client, 1) == [(name, b"alive")]
        # Heartbeats can be stopped by a reload, and are missed then.
        other.configure({"heartbeat": {"interval": 0}})
        other.reload()
        assert changes(client, 2) == [(name, b"silent"), (name, b"dead")]


def test_a_source_is_dead_after_as_many_missed_heartbeats_as_configured(tmp_path: Path) -> None:
    """One that sends other messages lives on; one that never sent a heartbeat is nobody's concern."""
    with (
        Daemon(tmp_path / "a", {"heartbeat": {"interval": "100ms", "dead_after": 1000}}) as patient,
        Wire(patient.port) as wire,
    ):
        quick = Daemon(tmp_path / "b", start=False)
        quick.configure({"host": "b", "segments": patient.settings["segments"]})
        quick.configure({"heartbeat": {"interval": "1s", "dead_after": 1}})
        quick.start()
        with quick:
            wire.send(datagram("mute/1", 1, "x"))
            for name in ("busy/1", "idle/1"):
                wire.send(datagram(name, 1, f"heartbeat/{name}"))
            over = threading.Event()

            def be_busy() -> None:
                seq = 1
                while not over.wait(0.02):
                    seq += 1
                    wire.send(datagram("busy/1", seq, "x"))

            busy = threading.Thread(target=be_busy)
            busy.start()
            try:
                wait(lambda: sources(quick).get("idle/1") == "dead")
                wait(lambda: sources(quick)["busy/1"] == "alive")
            finally:
                over.set()
                busy.join()
            assert sources(quick)["mute/1"] == ""
            assert sources(patient)["idle/1"] == "silent"
            # His tracker is gone on the one host, and with it what he has sent before.
            wire.send(datagram("idle/1", 1, "heartbeat/idle/1"))
            wait(lambda: sources(quick)["idle/1"] == "alive")
