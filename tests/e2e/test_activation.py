"""A real daemon started as systemd starts it: sockets and keys are passed to it, and it notifies the manager."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.activation import KILL
from tests.e2e.harness import PATIENCE, Daemon, Wire, datagram, payloads
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


def unshared() -> list[str]:
    """What starts a command in a network of its own, where there is nothing."""
    need_root("a network of its own")
    try:
        subprocess.run(["unshare", "--net", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        cannot_here(f"this host gives out no network of its own: {error}")
    return ["unshare", "--net"]


@pytest.mark.root
def test_without_a_network_it_serves_what_was_passed(tmp_path: Path) -> None:
    """A process that opens a socket of the network is killed by the kernel."""
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


def test_the_manager_is_told_of_a_life_from_start_to_end(service: Service) -> None:
    service.start()
    manager = service.manager
    assert manager.until("READY=1").value("STATUS")
    good = service.config.read_text()
    for text, applied in (("dedup: {sanity: none}", False), (good, True)):
        service.config.write_text(text)
        began = time.monotonic_ns() // 1000
        service.reload()
        reloading, ready = manager.until("RELOADING=1"), manager.until("READY=1")
        assert manager.before == []
        assert began <= int(reloading.value("MONOTONIC_USEC") or 0) <= time.monotonic_ns() // 1000
        assert ("dedup.sanity" in (ready.value("STATUS") or "")) is not applied
        assert service.metric("config_last_reload_successful") == applied
    service.signal(signal.SIGTERM)
    manager.until("STOPPING=1")
    assert service.running.wait(PATIENCE) == 0
    # A start that is refused is told, too.
    service.config.write_text("dedup: {santy: 1}")
    process = service.spawn()
    assert process.wait(PATIENCE) == 2
    (one,) = manager.notifications()
    assert "dedup.santy" in (one.value("STATUS") or "")
    assert manager.senders == {service.pid, process.pid}
    service.process = None
