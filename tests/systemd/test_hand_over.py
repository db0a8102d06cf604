"""The daemon is restarted and upgraded under load, and no client notices; it is killed, and its clients are told."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.systemd import load
from tests.systemd.conftest import Hosts
from tests.systemd.host import Host, dpkg, wait

ROUNDS: Final = 20
#: between two rounds, so that the load flows (s)
_REST: Final = (0.1, 0.4)
#: a watchdog that does not take the patience of a test
_WATCHDOG: Final = "[Service]\nWatchdogSec=1\n"


def restart(host: Host, number: int) -> None:
    host.run("systemctl", "restart", "bccnd.service")


def kill(host: Host, number: int) -> None:
    host.kill("KILL")


def upgrade(host: Host, number: int) -> None:
    """To the newer build and back by turns."""
    dpkg(host, "--force-downgrade", "-i", f"/packages/{('new', 'old')[number % 2]}.deb")


def stand_still(host: Host, number: int) -> None:
    """The loop stops dead; the watchdog is to end it."""
    host.kill("STOP")


def reexec(host: Host, number: int) -> None:
    """systemd replaces itself, and keeps what it was given to keep."""
    host.run("systemctl", "daemon-reexec")
    restart(host, number)


def replaced(host: Host, before: int) -> Callable[[], bool]:
    """Whether another daemon than the one before serves."""

    def done() -> bool:
        return host.main_pid() not in (0, before) and host.show("ActiveState") == "active"

    return done


def settled(host: Host) -> None:
    """The kernel had room for all that came, and the daemon counts no drops either."""
    assert host.kernel_drops() == 0
    assert host.metric("socket_drops_total") == 0


@pytest.fixture
def pair(hosts: Hosts) -> tuple[Host, Host]:
    """Hosts ``a`` and ``b`` with their daemons, and a third one without."""
    hosts.wire("abc")
    a, b = hosts.host("a"), hosts.host("b")
    for host in (a, b):
        hosts.configure(host)
    a.write("/etc/systemd/system/bccnd.service.d/watchdog.conf", _WATCHDOG)
    for host in (a, b):
        host.boot()
        host.wait_active()
    return a, b


@pytest.fixture
def traffic(hosts: Hosts, pair: tuple[Host, Host], key_file: Path) -> Iterator[load.Load]:
    """A load between the pair, which has begun to flow."""
    with load.Load(*pair, hosts.segment, key_file) as traffic:
        time.sleep(0.5)
        yield traffic


@pytest.mark.parametrize(
    ("crashes", "ways"),
    [(0, [restart, upgrade, restart, reexec]), (ROUNDS, [kill, kill, kill, stand_still])],
    ids=["stops", "crashes"],
)
def test_under_load_nothing_is_lost_or_every_client_is_told(
    pair: tuple[Host, Host], traffic: load.Load, crashes: int, ways: list[Callable[[Host, int], None]]
) -> None:
    a, b = pair
    chance = random.Random(crashes)
    for number in range(ROUNDS):
        before = a.main_pid()
        what = ways[number % len(ways)]
        what(a, number // len(ways))
        wait(replaced(a, before), f"the daemon after {what.__name__}, number {number + 1}")
        time.sleep(chance.uniform(*_REST))
    assert traffic.finish(crashes) == []
    # The slow ones were slow enough to lose something, or they would prove nothing. (A crash loses what tells of it.)
    assert crashes or sum(one["told"] for one in traffic.here.finish()["connections"] if one["slow"]) > 0
    settled(a)
    assert a.metric("crashes_total") == (1 if crashes else 0)
    # To the other host it is one program that goes on, not one that began anew: no number is missing, none came twice.
    assert b.metric("source_restarts_total") == 0
    assert b.metric("messages_lost_total") == 0
    assert crashes or b.metric("messages_missing") == 0


def test_stop_ends_connections_and_the_next_start_serves(pair: tuple[Host, Host]) -> None:
    a, _ = pair
    with load.witness(a, "-n", "3") as program:
        a.run("systemctl", "stop", "bccnd.service")
        found = load.faults(program.finish(), {})
        assert len(found) == 3
    a.run("systemctl", "stop", "bccnd*")
    assert a.main_pid() == 0
    assert not a.path("/run/bccnd/bus.sock").exists()
    # The sockets are enough: a client starts the daemon.
    a.run("systemctl", "start", "bccnd-bus.socket", "bccnd-udp.socket", "bccnd-metrics.socket")
    with load.witness(a) as program, load.local_speaker(a, 0, 100, "-n", "10") as speaker:
        assert speaker.finish(ask=False)["sent"] == 10
        assert load.faults(program.finish(), {0: 10}) == []
