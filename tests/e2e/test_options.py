"""Options of the configuration through the real daemon, as far as no other file tests them."""

from __future__ import annotations

import grp
import os
import re
import signal
import socket
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import bccnd
from tests.e2e.harness import BIN, KEY, Daemon, Wire, acting_as, datagram, payloads, wait
from tests.e2e.starting import refused
from tests.support import BROADCAST, free_port, need_root

SRC = "host-c/plain/7"


def daemon_with(folder: Path, **settings: Any) -> Daemon:
    return Daemon(folder / "a", settings)


def test_the_host_is_the_first_part_of_every_name(tmp_path: Path) -> None:
    with daemon_with(tmp_path, host="kiosk-3.lan") as daemon, daemon.connect() as client:
        assert client.identity() == f"kiosk-3.lan/{comm()}/{os.getpid()}"
        assert daemon.process is not None
        described = daemon.tool("sources", "--json")
        assert (described.returncode, described.stdout) == (0, b"")


def comm() -> str:
    """What the kernel calls this process."""
    return Path("/proc/self/comm").read_text().strip().replace("/", "_")


def test_a_segment_is_called_in_metrics_as_the_configuration_calls_it(tmp_path: Path) -> None:
    segment = {"address": BROADCAST, "port": free_port(), "name": "shop floor"}
    with daemon_with(tmp_path, segments=[segment]) as daemon, daemon.connect() as client:
        client.publish("x", b"y")
        wait(lambda: daemon.metric("datagrams_total", segment="shop floor", verdict="looped") == 1)


def test_segments_on_two_ports_are_heard_and_sent_to(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    segments = [{"address": BROADCAST, "port": port} for port in ports]
    with (
        daemon_with(tmp_path, segments=segments) as daemon,
        daemon.connect("x") as client,
        Wire(ports[0]) as one,
        Wire(ports[1]) as two,
    ):
        one.send(datagram(SRC, 1, "x", b"first"))
        assert payloads(client, 1) == [b"first"]
        two.send(datagram(SRC, 1, "x", b"first"), datagram(SRC, 2, "x", b"second"))
        assert payloads(client, 1) == [b"second"]
        client.publish("x", b"ours")
        assert one.hear(b"ours") == two.hear(b"ours")
        wait(lambda: daemon.verdicts() == {"accepted": 2, "duplicate": 1, "looped": 2})


@pytest.mark.parametrize("algorithm", ["none", "crc32", "hmac", "sig"])
def test_each_algorithm_lets_its_own_in_and_nothing_else(tmp_path: Path, algorithm: str) -> None:
    """Two daemons of one kind hear each other, and neither hears daemons of the other kinds."""
    port = free_port()
    daemons = {}
    for number, kind in enumerate(("none", "crc32", "hmac", "sig")):
        daemon = Daemon(tmp_path / kind, start=False)
        integrity: dict[str, Any] = {"algorithm": kind}
        if kind == "hmac":
            integrity = daemon.with_key(KEY)
        elif kind == "sig":
            assert daemon.tool("keygen", "--algorithm", "sig", str(daemon.folder / "key")).returncode == 0
            integrity.update({"keys": ["key"], "signers": {"": ["key.pub"]}})
        segment = {**daemon.settings["segments"][0], "port": port}
        daemon.configure({"host": f"host{number}", "segments": [segment], "integrity": integrity})
        daemons[kind] = daemon
    speaker = daemons[algorithm]
    twin = Daemon(tmp_path / "twin", start=False)
    twin.configure({"host": "twin", "segments": speaker.settings["segments"]})
    twin.configure({"integrity": speaker.settings["integrity"]})
    for name in ("key", "key.pub"):
        if (speaker.folder / name).exists():
            (twin.folder / name).write_bytes((speaker.folder / name).read_bytes())
            (twin.folder / name).chmod(0o600)
    listeners = [twin, *(daemon for daemon in daemons.values() if daemon is not speaker)]
    for daemon in (speaker, *listeners):
        daemon.start()
    with speaker, listeners[0], listeners[1], listeners[2], listeners[3], speaker.connect() as client:
        client.publish("x", b"hello")
        assert client.sync() == []
        unknown = "integrity_missing" if algorithm == "none" else "integrity_unknown"
        wait(lambda: speaker.verdicts() == {"looped": 1})
        wait(lambda: twin.verdicts() == {"accepted": 1})
        for daemon in listeners[1:]:
            wait(lambda: daemon.verdicts() == {unknown: 1}, f"{daemon.folder.name} to refuse it")  # noqa: B023


def test_a_leap_is_loss_below_sanity_and_a_new_beginning_from_there_on(tmp_path: Path) -> None:
    with daemon_with(tmp_path, dedup={"sanity": 16}) as daemon, Wire(daemon.port) as wire:
        wire.send(*(datagram(SRC, seq, "x") for seq in (100, 115)))
        wait(lambda: daemon.metric("messages_missing") == 14)
        wire.send(datagram(SRC, 131, "x"))
        wait(lambda: daemon.metric("source_jumps_total") == 1)
        wire.send(datagram(SRC, 115, "x"))
        wait(lambda: daemon.verdicts() == {"accepted": 3, "restart": 1})
        assert daemon.metric("source_restarts_total") == 1


def test_after_the_horizon_what_is_missing_is_lost_and_an_old_number_is_a_restart(tmp_path: Path) -> None:
    with daemon_with(tmp_path, dedup={"horizon": "300ms"}) as daemon, Wire(daemon.port) as wire:
        wire.send(datagram(SRC, 1, "x"), datagram(SRC, 4, "x"))
        wait(lambda: daemon.metric("messages_lost_total") == 2)
        assert daemon.metric("messages_missing") == 0
        wire.send(datagram(SRC, 4, "x"))
        wait(lambda: daemon.verdicts() == {"accepted": 2, "restart": 1})


@pytest.mark.parametrize(("late", "verdict"), [("drop", "stale"), ("deliver", "reordered")])
def test_what_was_overtaken_is_dropped_or_delivered_once(tmp_path: Path, late: str, verdict: str) -> None:
    rules = {"late": late, "horizon": "30s"}
    with daemon_with(tmp_path, dedup=rules) as daemon, daemon.connect("x") as client, Wire(daemon.port) as wire:
        wire.send(*(datagram(SRC, seq, "x", b"%d" % seq) for seq in (1, 3, 2, 2, 4)))
        wanted = [b"1", b"3", b"2", b"4"] if late == "deliver" else [b"1", b"3", b"4"]
        assert payloads(client, len(wanted)) == wanted
        wait(lambda: daemon.verdicts() == {"accepted": 3, verdict: 1, "duplicate": 1})
        assert daemon.metric("messages_missing") == daemon.metric("messages_lost_total") == 0


def test_a_silent_source_is_forgotten_in_time(tmp_path: Path) -> None:
    rules = {"expire": "300ms", "horizon": "100ms", "max_sources": 3}
    with daemon_with(tmp_path, dedup=rules) as daemon, Wire(daemon.port) as wire:
        wire.send(*(datagram(f"host/{number}", 1, "x") for number in range(5)))
        wait(lambda: daemon.metric("sources_forgotten_total", cause="evicted") == 2)
        wait(lambda: daemon.metric("sources_forgotten_total", cause="expired") == 3)
        assert daemon.metric("sources") == 0


def test_several_sockets_serve_one_bus_each_in_its_dialect(tmp_path: Path) -> None:
    dialects = {"sbus-dot": "a.", "broker": "a/+/c", "sbus": "a/>"}
    sockets = [{"path": str(tmp_path / dialect), "dialect": dialect} for dialect in dialects]
    with daemon_with(tmp_path, bus={"sockets": sockets}) as daemon, daemon.connect("a/>") as first:
        others = {dialect: bccnd.connect(str(tmp_path / dialect)) for dialect in dialects}
        for dialect, pattern in dialects.items():
            others[dialect].subscribe(pattern)
            assert others[dialect].sync() == []
        keys = ["a/b/c", "a.b.c", "a/>"]
        for key in keys:
            first.publish(key, key)
        wanted = {"sbus-dot": [b"a.b.c"], "broker": [b"a/b/c"], "sbus": [b"a/>"]}
        for dialect, client in others.items():
            assert payloads(client, 1) == wanted[dialect]
        assert payloads(first, 2) == [b"a/b/c", b"a/>"]
        others["broker"].publish("a.x", "from one to another")
        assert payloads(others["sbus-dot"], 1) == [b"from one to another"]
        assert daemon.metric("clients") == 4
        for client in others.values():
            assert client.sync() == []
            assert client.receive(0) is None
            client.close()
    assert not [path for path in tmp_path.iterdir() if path.is_socket()]


def test_the_mode_of_an_abstract_address_holds_though_it_has_no_file(tmp_path: Path) -> None:
    need_root("clients of several users")
    name, group, user = f"bccnd-test-{os.getpid()}", grp.getgrgid(os.getgroups()[0] if os.getgroups() else 0), 61_001
    sockets = [{"path": f"@{name}-owner", "mode": "0600"}, {"path": f"@{name}-group", "group": group.gr_name}]
    with daemon_with(tmp_path, bus={"sockets": [*sockets, {"path": f"@{name}-all", "mode": "0666"}]}) as daemon:
        may = {"owner": [False, False, True], "group": [False, True, True], "all": [True, True, True]}
        for address, expected in may.items():
            for who, permitted in zip([(user,), (user, user, group.gr_gid), (0,)], expected, strict=True):
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                    with acting_as(*who):
                        sock.connect(f"\0{name}-{address}")
                    sock.settimeout(10)
                    if permitted:
                        sock.send(b"CMSG !/bccn/sync")
                    answer = b"CMSG !/bccn/sync\0" if permitted else b"CMSG !/bccn/error\0not_admitted "
                    assert sock.recv(100) == answer, (address, who)
        assert daemon.metric("clients_refused_total", reason="not_admitted") == 3
        assert daemon.tool("pub", "a", "b").returncode == 0
        done = subprocess.run([BIN / "bccn", "--socket", f"@{name}-all", "pub", "a", "b"], check=False, timeout=20)
        assert done.returncode == 0


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


def test_the_socket_belongs_to_the_configured_group(tmp_path: Path) -> None:
    need_root("a socket is given to another group")
    group = next(one for one in grp.getgrall() if one.gr_gid not in (0, os.getegid()))
    with daemon_with(tmp_path, bus={"group": group.gr_name, "mode": "0660"}) as daemon:
        info = daemon.bus.stat()
        assert (info.st_gid, stat.S_IMODE(info.st_mode)) == (group.gr_gid, 0o660)


@pytest.mark.parametrize(
    ("dialect", "pattern", "fits", "not_this"),
    [
        ("path", "a/*/>", "a/b/c", "a/b"),
        ("sbus", "a/>", "a/>", "a/b"),
        ("sbus-dot", "a.*.c", "a.b.c", "a.b/c.d"),
        ("broker", "+/*/c", "a/x/y/c", "a/x/y/d"),
    ],
)
def test_patterns_are_read_in_the_configured_dialect(
    tmp_path: Path, dialect: str, pattern: str, fits: str, not_this: str
) -> None:
    channels = (fits, not_this, "end")
    with (
        daemon_with(tmp_path, bus={"dialect": dialect}) as daemon,
        daemon.connect(pattern, "end") as client,
        Wire(daemon.port) as wire,
    ):
        wire.send(*(datagram(SRC, seq, chan, chan) for seq, chan in enumerate(channels)))
        assert payloads(client, 2) == [fits.encode(), b"end"]


def test_a_queue_is_capped_in_bytes_as_well(tmp_path: Path) -> None:
    queue = {"queue": {"messages": 1_000_000, "bytes": "16KiB"}}
    with daemon_with(tmp_path, bus=queue) as daemon, daemon.connect("x") as slow, daemon.connect() as client:
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


def test_a_client_may_hold_so_many_patterns_and_no_more(tmp_path: Path) -> None:
    with daemon_with(tmp_path, bus={"max_subscriptions": 3}) as daemon, daemon.connect("a", "b", "c") as client:
        client.subscribe("d")
        assert client.sync() == [bccnd.Refusal("too_many_subscriptions", "d")]
        client.unsubscribe("a")
        client.subscribe("d")
        assert client.sync() == []


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


def test_channels_are_counted_by_their_groups_and_groups_can_be_reloaded(tmp_path: Path) -> None:
    with (
        daemon_with(tmp_path, metrics={"groups": {"cards": "cards/>", "all": ""}}) as daemon,
        Wire(daemon.port) as wire,
    ):
        wire.send(datagram(SRC, 1, "cards/tx", b"12345"), datagram(SRC, 2, "logs", b"678"))
        wait(lambda: daemon.metric("channel_messages_total", group="all") == 2)
        assert daemon.metric("channel_messages_total", group="cards") == 1
        assert daemon.metric("channel_bytes_total", group="all") == 8
        daemon.configure({"metrics": {"groups": {"logs": "logs"}}})
        daemon.reload()
        wire.send(datagram(SRC, 3, "logs", b"9"))
        wait(lambda: daemon.metric("channel_messages_total", group="logs") == 1)


# -- who is alive


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
        daemon_with(tmp_path, heartbeat={"interval": "100ms", "dead_after": 40}) as patient,
        Wire(patient.port) as wire,
    ):
        quick = Daemon(tmp_path / "b", start=False)
        quick.configure({"host": "b", "segments": patient.settings["segments"]})
        quick.configure({"heartbeat": {"interval": "100ms", "dead_after": 1}})
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


def test_who_speaks_under_the_name_of_a_local_program_is_reported_once_and_counted(tmp_path: Path) -> None:
    with daemon_with(tmp_path) as daemon, daemon.connect("x") as client, Wire(daemon.port) as wire:
        client.publish("x", b"mine")
        assert payloads(client, 1) == [b"mine"]
        wait(lambda: daemon.verdicts() == {"looped": 1})
        assert daemon.metric("identity_conflicts_total") == 0
        wire.send(*(datagram(client.identity(), seq, "x", b"not mine") for seq in (1, 2, 3)))
        wait(lambda: daemon.verdicts() == {"looped": 4})
        assert daemon.metric("identity_conflicts_total") == 3
        assert daemon.said().count("identity conflict") == 1
        assert client.identity() in daemon.said()
        assert client.receive(0.1) is None
