"""A real daemon started as systemd starts it: sockets and keys are passed to it, and it notifies the manager."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.activation import KILL, Notification
from tests.e2e.harness import BIN, PATIENCE, Daemon, Wire, datagram, payloads, wait
from tests.e2e.service import Service, bound_udp
from tests.support import BROADCAST, cannot_here, free_port, need_root

GROUP = "239.255.54.12"


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
        assert wire.receive(b"|out").startswith(b"BCCN1[")
        assert payloads(client, 1) == [b"out"]


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# -- sockets


def test_nothing_that_comes_while_the_daemon_is_away_is_lost(service: Service) -> None:
    service.bind("metrics", "udp", "bus")
    with Wire(service.port) as wire:
        for seq in range(1, 4):
            wire.send(datagram("far/p/1", seq, "x", b"early"))
            with service.raw() as early:
                early.send(b"CMSG !/bccn/sync\0early")
                service.start()
                service.manager.until("READY=1")
                assert early.recv(100) == b"CMSG !/bccn/sync\0early"
            wait(lambda: service.verdicts() == {"accepted": 1}, "the early datagram")
            both_ways(service, seq + 100)
            # Our own broadcast comes back, and must not be left for the next one.
            wait(lambda: service.verdicts() == {"accepted": 2, "looped": 1}, "the echo")
            # What belongs to systemd is left as it is, by an orderly exit and by another one.
            if seq == 2:
                service.kill()
            else:
                assert service.stop() == 0
            assert stat.S_IMODE(service.bus.stat().st_mode) == 0o660
    listen = service.settings["metrics"]["listen"]
    passed = f"from systemd: segment {BROADCAST}#{service.port}, metrics {listen}, bus {service.bus}"
    assert service.output().count(passed) == 3
    assert "warning" not in service.output()


def test_what_waits_at_a_stop_is_left_to_the_next_daemon(service: Service) -> None:
    service.bind("udp", "bus")
    _, udp = service.passed[0]
    udp.setblocking(False)
    service.start()
    service.manager.until("READY=1")
    if "the kernel limits the receive buffer to" in service.output():
        cannot_here("this user gets no receive buffer for so many datagrams (it takes root, or net.core.rmem_max)")
    with Wire(service.port) as wire:
        service.signal(signal.SIGSTOP)
        wait(lambda: stopped(service.pid), "it to be stopped")
        sent = [datagram("far/p/1", seq, "x", b"%d" % seq) for seq in range(1, 3001)]
        wire.send(*sent)
        service.signal(signal.SIGTERM)
        service.signal(signal.SIGCONT)
        assert service.running.wait(PATIENCE) == 0
    left = []
    with suppress(BlockingIOError):
        while True:
            left.append(udp.recv(1000))
    # The signal may come in the middle of a round of the loop, which takes no more than 512 datagrams.
    assert left == sent[-len(left) :]
    assert len(left) >= len(sent) - 512


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
    """A process that opens one is killed by the kernel."""
    port, other = free_port(), free_port()
    segments = [
        {"address": BROADCAST, "port": port},
        {"name": "pinned", "address": BROADCAST, "port": other, "interface": "lo"},
        {"name": "group", "address": GROUP, "port": port, "interface": "lo"},
    ]
    with Service(tmp_path / "a", {"segments": segments}, barred=KILL, prefix=unshared()) as service:
        service.bind("bus", "udp", "metrics")
        service.passed += [("group", bound_udp(port, GROUP)), ("udp", bound_udp(other))]
        service.start()
        service.prefix = []  # we have the network that it does not
        both_ways(service)
        with service.connect("x") as client, Wire(other) as wire:
            wire.send(datagram("far/p/2", 1, "x", b"over the other"))
            assert payloads(client, 1) == [b"over the other"]
            client.publish("y", b"to all segments")
            wire.receive(b"|to all segments")
        assert service.metric("datagrams_total", verdict="accepted") == 2
        service.reload()
        both_ways(service, 9)
        assert service.tool("clients").returncode == 0


# -- what the manager is told


def test_a_life_is_told_from_its_first_to_its_last_word(service: Service) -> None:
    service.start()
    manager = service.manager
    ready = manager.until("READY=1")
    assert manager.before == []
    assert (ready.value("STATUS") or "").startswith("serving 0 clients on 1 segment; 0 sources known, ")
    good = service.config.read_text()

    def reloaded() -> Notification:
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
    with service.connect("x") as client, Wire(service.port) as wire:
        wire.send(datagram("far/p/1", 1, "x"), datagram("far/p/2", 1, "x"))
        assert len(payloads(client, 2)) == 2
        assert (reloaded().value("STATUS") or "").startswith("serving 1 client on 1 segment; 2 sources known, ")
    service.signal(signal.SIGTERM)
    assert manager.until("STOPPING=1").value("STATUS") == "stopping"
    assert service.running.wait(PATIENCE) == 0
    assert manager.notifications() == []
    assert manager.senders == {service.pid}


def test_a_faulty_configuration_is_reported_to_the_manager_by_a_start_and_not_by_a_check(service: Service) -> None:
    service.config.write_text("dedup:\n  santy: 1\nbus:\n  mode: 1\n")
    command = [str(BIN / "bccnd"), "--check", "--config", str(service.config)]
    environment = {**os.environ, "NOTIFY_SOCKET": service.manager.address}
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 2
    process = service.spawn()
    assert process.wait(PATIENCE) == 2
    (one,) = service.manager.notifications()
    assert re.fullmatch(
        r"STATUS=cannot start: .*bccnd\.yaml:2: dedup\.santy: unknown key; remedy: .* sanity\? \(and 1 more\)",
        one.lines[0],
    )
    assert service.manager.senders == {process.pid}
