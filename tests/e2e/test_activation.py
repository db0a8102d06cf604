"""A real daemon started as systemd starts it: sockets passed, keys passed, and what it says of itself meanwhile."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import bccnd
from tests.activation import KILL, REFUSE, Told
from tests.e2e.harness import BIN, KEY, PATIENCE, Daemon, Wire, datagram, payloads, wait
from tests.e2e.service import Service, bound_udp
from tests.support import BROADCAST, cannot_here, free_port, need_others, need_root

GROUP = "239.255.54.12"
SO_RCVBUFFORCE = 33


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "a") as one:
        yield one


def both_ways(service: Daemon, seq: int = 1) -> None:
    """Datagrams come in from the segment to a client, and go out from one."""
    with service.connect("x") as client, Wire(service.port) as wire:
        wire.send(datagram("far/p/1", seq, "x", b"in"))
        assert payloads(client, 1) == [b"in"]
        client.publish("x", b"out")
        assert wire.hear(b"|out").startswith(b"BCCN1[")
        assert payloads(client, 1) == [b"out"]


# -- sockets


@pytest.mark.parametrize("seed", range(3))
def test_what_was_passed_is_served_in_whatever_order_it_came(service: Service, seed: int) -> None:
    service.bind("bus", "udp", "metrics")
    random.Random(seed).shuffle(service.passed)
    service.start()
    both_ways(service)
    assert service.verdicts() == {"accepted": 1, "looped": 1}
    listen = service.settings["metrics"]["listen"]
    passed = f"from systemd: segment {BROADCAST}#{service.port}, metrics {listen}, bus {service.bus}"
    assert passed in service.said()
    assert "warning" not in service.said()


def test_nobody_and_nothing_that_comes_while_the_daemon_is_away_is_lost(service: Service) -> None:
    service.bind("bus", "udp", "metrics")
    with Wire(service.port) as wire:
        for seq in range(1, 4):
            wire.send(datagram("far/p/1", seq, "x", b"early"))
            with service.raw() as early:
                early.send(b"CMSG !/bccn/sync\0early")
                service.start()
                assert early.recv(100) == b"CMSG !/bccn/sync\0early"
            wait(lambda: service.verdicts() == {"accepted": 1}, "the early datagram")
            both_ways(service, seq + 100)
            # Our own broadcast comes back, and must not be left for the next one.
            wait(lambda: service.verdicts().get("looped") == 1, "the echo")
            # What belongs to systemd is left as it is, by an end in order and by another one.
            if seq == 2:
                service.signal(signal.SIGKILL)
                assert service.process is not None
                service.process.wait(PATIENCE)
            else:
                assert service.stop() == 0
            assert stat.S_IMODE(service.bus.stat().st_mode) == 0o660


def test_what_is_configured_and_was_not_passed_is_opened_as_usual(service: Service) -> None:
    service.bind("udp")
    service.start()
    both_ways(service)
    assert re.search(rf"from systemd: segment {BROADCAST}#{service.port}(; not compiled)?\n", service.said())
    assert service.metric("clients") == 0
    assert service.stop() == 0
    assert not service.bus.exists()


def test_metrics_are_served_where_they_were_passed(service: Service) -> None:
    service.bind("metrics")
    where = service.settings["metrics"]["listen"]
    elsewhere = f"127.0.0.1:{free_port()}"
    service.configure({"metrics": {"listen": elsewhere}})
    service.start()
    assert f"metrics http://{where}/; from systemd: metrics {where}" in service.said()
    service.configure({"metrics": {"listen": where}})
    assert service.metric("clients") == 0


def test_two_segments_of_one_port_are_told_apart_by_their_names(service: Service) -> None:
    need_root("an older kernel lets only root name an interface")
    port = service.port
    segments = [
        {"name": "lan", "address": BROADCAST, "port": port},
        {"name": "group", "address": GROUP, "port": port, "interface": "lo"},
    ]
    service.configure({"segments": segments})
    service.passed = [("group", bound_udp(port, GROUP)), ("lan", bound_udp(port))]
    service.start()
    with service.connect("x") as client, Wire(port) as wire:
        wire.send(datagram("far/p/1", 1, "x", b"to all"))
        wire.sock.setsockopt(
            socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4si", b"", b"", socket.if_nametoindex("lo"))
        )
        wire.sock.sendto(datagram("far/p/1", 2, "x", b"to the group"), (GROUP, port))
        assert sorted(payloads(client, 2)) == [b"to all", b"to the group"]
    for name in ("lan", "group"):
        assert service.metric("datagrams_total", segment=name, verdict="accepted") == 1


def test_a_buffer_that_systemd_has_granted_is_kept(service: Service, tmp_path: Path) -> None:
    need_root("granting more than everybody gets")
    need_others()
    most = int(Path("/proc/sys/net/core/rmem_max").read_text())
    service.bind("bus", "udp", "metrics")
    sock = dict(service.passed)["udp"]
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 * most)
    before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    for receive_buffer, warned in ((4 * most, False), (6 * most, True)):
        service.configure(
            {"segments": [{"address": BROADCAST, "port": service.port, "receive_buffer": receive_buffer}]}
        )
        service.prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
        with Elsewhere(service):
            service.start()
            both_ways(service)
            assert service.stop() == 0
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before
        assert ("ReceiveBuffer=" in service.said()) is warned


class Elsewhere:
    """What a service of nobody in particular needs to be open to it."""

    def __init__(self, service: Service) -> None:
        self._paths = [service.config, service.bus, Path(service.manager.address)]
        self._folders = [one for one in service.config.parents if one.stat().st_mode & 0o777 == 0o700]

    def __enter__(self) -> None:
        for one in self._paths:
            os.chown(one, 65_534, -1)
        for one in self._folders:
            one.chmod(0o711)

    def __exit__(self, *_: object) -> None:
        for one in self._folders:
            one.chmod(0o700)


# -- what does not fit


def test_a_bus_elsewhere_than_configured_is_refused(service: Service) -> None:
    service.bind("udp", "bus", "metrics")
    service.configure({"bus": {"path": str(service.folder / "other.sock")}})
    said = service.refused()
    assert f"the socket unit bus listens at {service.bus}" in said
    assert f"the configuration says {service.folder}/other.sock" in said
    assert "make them agree: ListenSequentialPacket= of the socket unit, or bus.path" in said
    assert service.bus.exists()
    assert not (service.folder / "other.sock").exists()


def test_a_segment_elsewhere_than_configured_is_refused(service: Service) -> None:
    other = free_port()
    service.passed = [("udp", bound_udp(other))]
    said = service.refused()
    assert f"the socket unit udp listens at 0.0.0.0:{other}" in said
    assert f"the configuration says {BROADCAST}#{service.port} (inet port {service.port})" in said
    assert "ListenDatagram=" in said
    assert not service.bus.exists()


def test_metrics_that_are_off_are_refused(service: Service) -> None:
    service.bind("metrics")
    where = service.settings["metrics"]["listen"]
    service.configure({"metrics": {"listen": "off"}})
    assert f"the socket unit metrics listens at {where}, the configuration says off" in service.refused()


def test_a_bus_of_the_wrong_kind_is_refused(service: Service) -> None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(service.bus))
    sock.listen()
    service.passed = [("bccnd-bus.socket", sock)]
    said = service.refused()
    assert f"a socket for which there is no use: AF_UNIX, SOCK_STREAM, at {service.bus}" in said
    assert "ListenSequentialPacket= is for the bus" in said


def test_a_passed_socket_that_hears_no_broadcast_is_refused(service: Service) -> None:
    service.passed = [("udp", bound_udp(service.port, "127.0.0.1"))]
    assert "bound to 127.0.0.1, where it receives no broadcast" in service.refused()


# -- shut off from the network


def unshared() -> list[str]:
    """What starts a command in a network of its own, where there is nothing."""
    need_root("a network of its own")
    try:
        subprocess.run(["unshare", "--net", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        cannot_here(f"this host gives out no network of its own: {error}")
    return ["unshare", "--net"]


@pytest.mark.root
def test_in_a_network_of_its_own_it_serves_what_was_passed_and_opens_no_socket_of_the_network(tmp_path: Path) -> None:
    """Whoever opens one is killed by the kernel."""
    port = free_port()
    segments = [
        {"address": BROADCAST, "port": port},
        {"name": "pinned", "address": BROADCAST, "port": port + 1, "interface": "lo"},
        {"name": "group", "address": GROUP, "port": port, "interface": "lo"},
    ]
    with Service(tmp_path / "a", {"segments": segments}, barred=KILL, prefix=unshared()) as service:
        service.bind("bus", "udp", "metrics")
        service.passed += [("group", bound_udp(port, GROUP)), ("udp", bound_udp(port + 1))]
        service.start()
        service.prefix = []  # we have the network that it does not
        both_ways(service)
        with service.connect("x") as client, Wire(port + 1) as wire:
            wire.send(datagram("far/p/2", 1, "x", b"over the other"))
            assert payloads(client, 1) == [b"over the other"]
            client.publish("y", b"to all segments")
            wire.hear(b"|to all segments")
        assert service.metric("datagrams_total", verdict="accepted") == 2
        service.reload()
        both_ways(service, 9)
        assert service.tool("clients").returncode == 0


@pytest.mark.root
def test_ipv6_is_served_from_a_network_of_its_own_too(tmp_path: Path) -> None:
    """The group's interface is known to nobody but the socket; on the loopback one there is none in IPv6."""
    port = free_port()
    segment = {"name": "six", "address": "ff02::bcc", "port": port, "interface": "lo"}
    with Service(tmp_path / "a", {"segments": [segment]}, barred=KILL, prefix=unshared()) as service:
        try:
            sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(("::", port))
        except OSError as error:
            cannot_here(f"this host has no IPv6: {error}")
        service.bind("bus", "metrics")
        service.passed.append(("udp", sock))
        service.start()
        service.prefix = []
        with service.connect("x") as client, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as far:
            far.bind(("::1", 0))
            far.sendto(datagram("far/p/1", 1, "x", b"in"), ("::1", port))
            event = client.receive(PATIENCE)
            assert isinstance(event, bccnd.Message)
            assert event.peer == f"[::1]:{far.getsockname()[1]}"


@pytest.mark.root
def test_a_segment_that_was_not_passed_to_who_may_open_none_is_told_of_the_socket_unit(tmp_path: Path) -> None:
    need_root("a filter of system calls")
    with Service(tmp_path / "a", barred=REFUSE) as service:
        service.bind("bus")
        said = service.refused()
        assert "cannot open a socket: Address family not supported by protocol" in said
        assert f"ListenDatagram=0.0.0.0:{service.port}, Broadcast=yes, Service=bccnd.service" in said
        assert "PrivateNetwork=no" in said


@pytest.mark.root
def test_metrics_that_were_not_passed_to_who_may_open_none_are_told_of_the_socket_unit(tmp_path: Path) -> None:
    need_root("a filter of system calls")
    with Service(tmp_path / "a", barred=REFUSE) as service:
        service.bind("udp")
        said = service.refused()
        assert "metrics.listen: cannot listen on" in said
        assert "ListenStream=" in said
        assert not service.bus.exists()


@pytest.mark.root
def test_a_segment_beyond_the_network_that_there_is_is_told_of_the_socket_unit(tmp_path: Path) -> None:
    with Service(tmp_path / "a", prefix=unshared()) as service:
        service.configure({"segments": [{"address": "255.255.255.255", "port": service.port}]})
        said = service.refused()
        assert "no way to 255.255.255.255: Network is unreachable" in said
        assert f"ListenDatagram=0.0.0.0:{service.port}" in said


# -- what the manager is told


def test_a_life_is_told_from_its_first_to_its_last_word(service: Service) -> None:
    service.start()
    assert service.process is not None
    manager = service.manager
    ready = manager.until("READY=1")
    assert manager.before == []
    assert ready.value("STATUS") == "serving 0 clients on 1 segment; 0 sources known, 0 datagrams a second"
    good = service.config.read_text()

    def reloaded() -> Told:
        began = time.monotonic_ns() // 1000
        service.reload()
        first, second = manager.until("RELOADING=1"), manager.until("READY=1")
        assert manager.before == []
        assert began <= int(first.value("MONOTONIC_USEC") or 0) <= time.monotonic_ns() // 1000
        return second

    assert (reloaded().value("STATUS") or "").startswith("serving 0 clients")
    service.config.write_text("host: relay01\ndedup:\n  sanity: none\n  horizon: soon\n")
    for _ in range(2):
        refused = reloaded().value("STATUS") or ""
        assert refused.startswith(f"reload refused: {service.config}:3: dedup.sanity: ")
        assert "remedy: " in refused
    service.config.write_text(good)
    assert (reloaded().value("STATUS") or "").startswith("serving 0 clients")
    service.signal(signal.SIGTERM)
    assert manager.until("STOPPING=1").value("STATUS") == "stopping"
    assert service.process.wait(PATIENCE) == 0
    assert manager.said() == []
    assert manager.senders == {service.process.pid}


def test_a_configuration_that_is_no_good_is_told_and_shown(service: Service) -> None:
    service.config.write_text("dedup:\n  santy: 1\nbus:\n  mode: 1\n")
    process = service.spawn()
    assert process.wait(PATIENCE) == 2
    (one,) = service.manager.said()
    assert re.fullmatch(
        r"STATUS=cannot start: .*bccnd\.yaml:2: dedup\.santy: unknown key; remedy: .* sanity\? \(and 1 more\)",
        one.lines[0],
    )
    assert service.manager.senders == {process.pid}


def test_a_start_that_is_not_possible_is_told_and_shown(service: Service) -> None:
    service.configure({"segments": [{"address": "127.0.0.1"}]})
    assert "127.0.0.1 is not a broadcast address" in service.refused()


def test_checking_a_file_tells_the_manager_nothing(service: Service) -> None:
    service.config.write_text("bus: {pth: /x}")
    command = [str(BIN / "bccnd"), "--check", "--config", str(service.config)]
    environment = {**os.environ, "NOTIFY_SOCKET": service.manager.address}
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 2
    assert service.manager.said() == []


def test_the_status_follows_what_is_going_on(service: Service) -> None:
    service.start()
    service.manager.until("READY=1")
    with service.connect("x") as client, Wire(service.port) as wire:
        wire.send(datagram("far/p/1", 1, "x"), datagram("far/p/2", 1, "x"))
        assert len(payloads(client, 2)) == 2
        status = service.manager.until("STATUS=").value("STATUS") or ""
        assert status.startswith("serving 1 client on 1 segment; 2 sources known, ")
        assert service.manager.before == []


def test_the_watchdog_is_fed_while_nothing_happens_and_not_while_the_loop_stands_still(service: Service) -> None:
    service.environment = {"WATCHDOG_USEC": "200000"}
    service.start()
    manager = service.manager
    manager.until("READY=1")
    began = time.monotonic()
    for _ in range(8):
        manager.until("WATCHDOG=1")
    assert 0.6 < time.monotonic() - began < 5
    service.signal(signal.SIGSTOP)
    time.sleep(0.05)
    manager.said()
    assert manager.hear(0.6) is None
    service.signal(signal.SIGCONT)
    manager.until("WATCHDOG=1")


def test_a_manager_that_stands_still_holds_nobody_up(service: Service) -> None:
    service.environment = {"WATCHDOG_USEC": "2000"}  # a thousand notifications a second
    service.start()
    time.sleep(0.5)  # far more than its socket holds
    both_ways(service)
    service.manager.until("WATCHDOG=1")


def test_without_a_manager_it_serves_as_ever(service: Service) -> None:
    service.environment = {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "200000"}
    service.start()
    both_ways(service)
    service.reload()
    assert service.stop() == 0
    assert service.manager.said() == []


# -- keys


def test_keys_are_taken_as_systemd_passes_them(service: Service) -> None:
    folder = service.folder / "credentials"
    folder.mkdir(mode=0o700)
    (folder / "keys_hmac.key").write_bytes(KEY)
    (folder / "keys_hmac.key").chmod(0o400)
    service.environment = {"CREDENTIALS_DIRECTORY": str(folder)}
    keys = "/etc/bccnd/keys/hmac.key"
    service.configure({"integrity": {"algorithm": "hmac", "keys": [keys]}})
    service.start()
    with service.connect("x") as client, Wire(service.port) as wire:
        wire.send(datagram("far/p/1", 1, "x", b"unsigned"), datagram("far/p/1", 2, "x", b"signed", KEY))
        assert payloads(client, 1) == [b"signed"]
        # One that came later was not passed.
        service.configure({"integrity": {"keys": [keys, "/etc/bccnd/keys/new.key"]}})
        service.reload()
        told = service.manager.until("READY=1"), service.manager.until("READY=1")
        refused = told[1].value("STATUS") or ""
        assert "integrity.keys[1]: cannot read key /etc/bccnd/keys/new.key" in refused
        assert "put new.key into /etc/bccnd/keys and 'systemctl restart bccnd'" in refused
        wire.send(datagram("far/p/1", 3, "x", b"still", KEY))
        assert payloads(client, 1) == [b"still"]
