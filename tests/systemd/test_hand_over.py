"""The daemon is restarted, upgraded, killed and stopped dead under load, and nobody notices."""

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

ROUNDS: Final = 10
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


def replaced(host: Host, before: int, *, early: bool = False) -> Callable[[], bool]:
    """Whether another daemon than the one before serves, or at least is there."""

    def done() -> bool:
        return host.main_pid() not in (0, before) and (early or host.show("ActiveState") == "active")

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
def traffic(hosts: Hosts, pair: tuple[Host, Host], programs: Path, key_file: Path) -> Iterator[load.Load]:
    """A load between the pair, which has begun to flow."""
    with load.Load(*pair, hosts.segment, programs, key_file) as traffic:
        time.sleep(0.5)
        yield traffic


def test_without_any_of_it_nothing_is_missing_either(pair: tuple[Host, Host], traffic: load.Load) -> None:
    time.sleep(7)
    report = traffic.here.report()
    assert traffic.finish() == []
    # The slow ones were slow enough to lose something, or they would prove nothing.
    assert sum(one["told"] for one in traffic.here.finish()["connections"] if one["slow"]) > 0
    assert len(report["connections"]) == traffic.CLIENTS
    settled(pair[0])


def test_where_nothing_is_kept_clients_do_notice(pair: tuple[Host, Host]) -> None:
    """So the others prove something."""
    a, _ = pair
    a.write("/etc/systemd/system/bccnd.service.d/forgets.conf", "[Service]\nFileDescriptorStoreMax=0\n")
    a.run("systemctl", "daemon-reload")
    restart(a, 0)
    with load.witness(a, "-n", "3") as program:
        restart(a, 1)
        found = load.faults(program.finish(), {})
    assert len(found) == 3
    assert all("lost its connection" in one for one in found)


@pytest.mark.parametrize(
    ("what", "times"),
    [(restart, ROUNDS), (upgrade, ROUNDS), (stand_still, ROUNDS), (reexec, 3), (kill, 30)],
    ids=["restart", "upgrade", "watchdog", "daemon-reexec", "kill"],
)
def test_again_and_again_under_load_and_no_client_notices(
    pair: tuple[Host, Host], traffic: load.Load, what: Callable[[Host, int], None], times: int
) -> None:
    a, b = pair
    chance = random.Random(times)
    for number in range(times):
        before = a.main_pid()
        what(a, number)
        # Who is killed may be killed again while it starts, when it has just started, and later.
        early = what is kill and chance.random() < 0.3
        wait(replaced(a, before, early=early), f"the daemon after {what.__name__} number {number + 1}")
        time.sleep(chance.expovariate(8) if what is kill else chance.uniform(*_REST))
    a.wait_active()
    assert traffic.finish() == []
    settled(a)
    # To the other host it is one program that goes on, not one that began anew: nothing is missing, nothing came twice.
    assert b.metric("source_restarts_total") == 0
    assert b.metric("messages_lost_total") == 0
    assert what is kill or b.metric("messages_missing") == 0
    if what is stand_still:
        assert a.output().count("Watchdog timeout") == times


def test_stop_ends_connections_and_the_next_start_serves_again(pair: tuple[Host, Host]) -> None:
    a, _ = pair
    with load.witness(a, "-n", "3") as program:
        a.run("systemctl", "stop", "bccnd.service")
        found = load.faults(program.finish(), {})
        assert len(found) == 3
        assert all("lost its connection" in one for one in found)

    def serves() -> None:
        with load.witness(a) as program, load.local_speaker(a, 0, 100, "-n", "10") as speaker:
            assert speaker.finish(ask=False)["sent"] == 10
            assert load.faults(program.finish(), {0: 10}) == []

    # The sockets are still there, and whoever comes wakes it.
    serves()
    a.run("systemctl", "stop", "bccnd*")
    assert a.main_pid() == 0
    assert not a.path("/run/bccnd/bus.sock").exists()
    a.run("systemctl", "start", "bccnd.service")
    a.wait_active()
    serves()
