"""The service manager: sockets are taken once; notifications never block, and are counted if they are lost."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.net import service_manager
from bccnd.net.loop import Loop
from bccnd.net.service_manager import MAX_STATUS, ServiceManager, take_sockets
from tests.activation import Notification, Notified, launch
from tests.limits import descriptors
from tests.support import NOBODY, ROOT, need_root, turn, turn_until

TAKER = """
import json, os, sys
from bccnd.net.service_manager import take_sockets
passed = dict(os.environ)
changed = []
for change in json.loads(sys.argv[1]):
    os.environ.update({**passed, **change})
    changed.append(take_sockets())
os.environ.update(passed)
taken = take_sockets()
print(json.dumps({
    "changed": changed,
    "taken": taken,
    "inherited": [name for name, fd in taken if os.get_inheritable(fd)],
    "files": [os.fstat(fd).st_ino for _, fd in taken],
    "left": [name for name in os.environ if name.startswith("LISTEN_")],
    "again": take_sockets(),
}))
"""


#: prints its log, and what it knows of a manager
ASKER = """
import sys
from bccnd import log
from bccnd.net.service_manager import ServiceManager, take_sockets
log.setup()
sockets, manager = take_sockets(), ServiceManager.from_environment()
print(sockets, manager.available, manager.watchdog, manager.max_stored)
manager.ready("serving")
manager.close()
"""


def test_variables_that_are_set_and_empty_are_not_set() -> None:
    names = ("NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID", "FDSTORE")
    environment = {**os.environ, **dict.fromkeys(names, "")}
    done = subprocess.run(
        [sys.executable, "-c", ASKER], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[] False 0.0 0\n", "")


def taken_by(passed: list[tuple[str, int]], *changes: dict[str, str]) -> dict[str, Any]:
    """What a program takes to which descriptors are passed, as its environment is and with each of the changes."""
    command = [*launch(passed), sys.executable, "-c", TAKER, json.dumps(changes)]
    descriptors = [one for _, one in passed]
    done = subprocess.run(command, cwd=ROOT, pass_fds=descriptors, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


@pytest.fixture
def pipes() -> Iterator[list[int]]:
    ends = [end for _ in range(3) for end in os.pipe()]
    yield ends
    for end in ends:
        os.close(end)


def test_descriptors_are_taken_once_with_their_names_and_not_inherited(pipes: list[int]) -> None:
    names = ["udp", "client-12", "bus", "udp", "255.255.255.255#5400", ""]
    found = taken_by(list(zip(names, pipes, strict=True)))
    assert found["taken"] == [[name, number] for number, name in enumerate(names, 3)]
    assert found["files"] == [os.fstat(end).st_ino for end in pipes]
    assert found["inherited"] == found["left"] == found["again"] == []


def test_what_does_not_fit_the_environment_is_not_taken(pipes: list[int]) -> None:
    pids = [{"LISTEN_PID": pid} for pid in ("1", "", "x", "-1", "٣")]
    names = [{"LISTEN_FDNAMES": text} for text in ("", "one", "one:two:three", ":::")]
    # Either all of them are open or none was passed.
    counts = {"0": 0, "1": 1, "9": 0, "": 0, "-2": 0, "two": 0}
    pair = [("bus", pipes[0]), ("udp", pipes[1])]
    found = taken_by(pair, *pids, *names, *({"LISTEN_FDS": count} for count in counts))["changed"]
    assert found[:5] == [[]] * 5
    assert found[5:9] == [[["unknown", 3], ["unknown", 4]]] * 4
    assert [len(taken) for taken in found[9:]] == list(counts.values())
    assert take_sockets() == []


@pytest.fixture
def notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notified]:
    with Notified(str(tmp_path / "notify")) as one:
        monkeypatch.setenv("NOTIFY_SOCKET", one.address)
        yield one


@pytest.fixture
def manager(notified: Notified, loop: Loop) -> Iterator[ServiceManager]:
    """It is closed before the loop, as in the daemon."""
    one = ServiceManager.from_environment()
    assert one.available
    one.attach(loop)
    yield one
    one.close()


def lines(notifications: list[Notification]) -> list[list[str]]:
    return [one.lines for one in notifications]


def dispose(*notifications: Notification) -> None:
    """Close the descriptors that came with them."""
    for one in notifications:
        for fd in one.descriptors:
            os.close(fd)


def fill(manager: ServiceManager) -> int:
    """Tell as much as the manager's socket holds; how much that was."""
    count = 0
    while not manager._queue:
        manager.extend_timeout(count)
        count += 1
    return count


def empty(manager: ServiceManager, notified: Notified, loop: Loop) -> list[Notification]:
    """Read all there is, while the loop turns, until nothing waits any more."""
    found: list[Notification] = []

    def read() -> bool:
        found.extend(notified.all())
        return not manager._queue

    turn_until(loop, read, "the queue to be empty")
    return found + notified.all()


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_each_call_is_the_notification_it_stands_for(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify") if kind == "path" else f"@bccnd-test-{secrets.token_hex(8)}"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with Notified(address) as notified:
        manager = ServiceManager.from_environment()
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        manager.status("starting")
        manager.extend_timeout(1.5)
        manager.ready("serving 3 clients")
        manager.reloading()
        manager.ping_watchdog()
        manager.forget("client-7")
        manager.stopping()
        notifications = notified.all()
        stamp = notifications[3].value("MONOTONIC_USEC")
        assert before <= int(stamp or 0) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert lines(notifications) == [
            ["STATUS=starting"],
            ["EXTEND_TIMEOUT_USEC=1500000"],
            ["READY=1", "STATUS=serving 3 clients"],
            ["RELOADING=1", f"MONOTONIC_USEC={stamp}"],
            ["WATCHDOG=1"],
            ["FDSTOREREMOVE=1", "FDNAME=client-7"],
            ["STOPPING=1", "STATUS=stopping"],
        ]
        assert manager.lost == 0
        # The manager believes only the main process of the service.
        assert notified.senders == {os.getpid()}
        manager.close()


def test_descriptors_are_stored_by_name_and_not_polled(
    manager: ServiceManager, notified: Notified, pipes: list[int]
) -> None:
    one, other, *_ = pipes
    assert manager.store("client-7", one)
    assert manager.store("pair", one, other)
    first, second = notified.all()
    assert first.lines == ["FDSTORE=1", "FDNAME=client-7", "FDPOLL=0"]
    assert [os.fstat(fd).st_ino for fd in first.descriptors] == [os.fstat(one).st_ino]
    assert len(second.descriptors) == 2
    dispose(first, second)


def test_a_changed_status_is_sent_as_one_printable_line(manager: ServiceManager, notified: Notified) -> None:
    manager.ready("fine")
    for text in ("fine", "fine", "better", "better", " better\n"):
        manager.status(text)
    assert lines(notified.all()) == [["READY=1", "STATUS=fine"], ["STATUS=better"]]
    manager.status("/etc/x:3: bad\n  remedy: good\nSTOPPING=1\r\nFDSTOREREMOVE=1\x1b[2J\0\udcff")
    (one,) = notified.all()
    assert one.lines == ["STATUS=/etc/x:3: bad; remedy: good; STOPPING=1; FDSTOREREMOVE=1?[2J??"]


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=2 * MAX_STATUS))
def test_whatever_a_status_holds_it_is_one_line_of_good_length(text: str) -> None:
    line = service_manager._line(text)
    assert len(line.encode()) <= MAX_STATUS
    assert line.isprintable()


def test_without_its_library_a_manager_is_notified_and_its_sockets_are_not_taken(
    notified: Notified, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "systemd", None)
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    assert take_sockets() == []
    assert "python3-systemd" in caplog.text
    ServiceManager.from_environment().ready("x")
    assert lines(notified.all()) == [["READY=1", "STATUS=x"]]


def test_without_a_manager_nothing_happens(loop: Loop) -> None:
    before = descriptors()
    for one in (ServiceManager(), ServiceManager.from_environment()):
        assert not one.available
        one.attach(loop)
        one.ready("x")
        assert not one.store("client-1", 0)
        one.forget("client-1")
        assert one.lost == 0
        one.close()
    assert descriptors() == before


def test_an_invalid_address_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "relative")
    one = ServiceManager.from_environment()
    one.ready("x")
    assert one.lost == 1
    assert caplog.text.count("was dropped") == 1


def test_the_watchdog_and_the_store_are_read_from_the_environment() -> None:
    ours = {"WATCHDOG_PID": str(os.getpid())}
    cases: list[tuple[dict[str, str], tuple[float, int]]] = [
        ({}, (0, 0)),
        ({"WATCHDOG_USEC": "10000000"}, (10, 0)),
        ({"WATCHDOG_USEC": "500000", "FDSTORE": "4096", **ours}, (0.5, 4096)),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, (0, 0)),
        ({"WATCHDOG_USEC": "soon", "FDSTORE": "many"}, (0, 0)),
        ({"WATCHDOG_USEC": "-1", "FDSTORE": ""}, (0, 0)),
    ]
    for environment, expected in cases:
        one = ServiceManager.from_environment(environment)
        assert (one.watchdog, one.max_stored) == expected
        one.close()


def test_the_loop_feeds_the_watchdog_twice_in_its_time(notified: Notified, loop: Loop) -> None:
    one = ServiceManager.from_environment({**os.environ, "WATCHDOG_USEC": "100000"})
    before = time.monotonic()
    one.attach(loop)
    (timer,) = loop._timers
    assert before + 0.05 <= timer.when <= time.monotonic() + 0.05
    fed: list[list[str]] = []

    def is_fed() -> bool:
        fed.extend(lines(notified.all()))
        return len(fed) >= 4

    turn_until(loop, is_fed, "the fourth sign of life")
    assert time.monotonic() - before >= 4 * 0.05
    assert fed == [["WATCHDOG=1"]] * 4
    one.close()


def test_unsent_notifications_are_queued_with_their_descriptors(
    manager: ServiceManager, notified: Notified, loop: Loop
) -> None:
    before = descriptors()
    sent = fill(manager)
    reader, writer = os.pipe()
    assert manager.store("client-1", reader)
    os.close(reader)  # the client has left meanwhile
    manager.forget("client-1")
    manager.ready("late")
    notifications = empty(manager, notified, loop)
    assert [one.value("EXTEND_TIMEOUT_USEC") for one in notifications[:sent]] == [
        f"{n * 1_000_000}" for n in range(sent)
    ]
    assert [one.lines[0] for one in notifications[sent:]] == ["FDSTORE=1", "FDSTOREREMOVE=1", "READY=1"]
    (kept,) = notifications[sent].descriptors
    os.write(writer, b"still open")
    assert os.read(kept, 100) == b"still open"
    os.close(kept)
    os.close(writer)
    assert descriptors() == before, "a copy was left open"
    assert manager.lost == 0


def test_a_stalled_manager_does_not_block_the_loop(manager: ServiceManager, loop: Loop) -> None:
    fill(manager)
    spent, rounds = time.process_time(), loop.rounds
    loop.every(0.001, lambda: None)
    loop.later(0.3, loop.stop)
    loop.run()
    assert time.process_time() - spent < 0.1
    assert loop.rounds - rounds > 50


def test_only_the_latest_status_and_one_sign_of_life_wait(
    manager: ServiceManager, notified: Notified, loop: Loop
) -> None:
    sent = fill(manager)
    for number in range(100):
        manager.status(f"number {number}")
        manager.ping_watchdog()
    manager.forget("client-1")
    notifications = empty(manager, notified, loop)
    assert lines(notifications[sent:]) == [["STATUS=number 99"], ["WATCHDOG=1"], ["FDSTOREREMOVE=1", "FDNAME=client-1"]]
    assert manager.lost == 0


def test_a_full_queue_drops_the_newest_and_counts_and_logs_it(
    manager: ServiceManager,
    notified: Notified,
    loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(service_manager, "MAX_QUEUED", 10)
    fill(manager)
    before = descriptors()
    stored = [manager.store(f"client-{number}", 0) for number in range(20)]
    assert stored == [True] * 9 + [False] * 11
    assert manager.lost == 11
    assert caplog.text.count("was dropped") == 1
    notifications = empty(manager, notified, loop)
    assert [one.value("FDNAME") for one in notifications[-9:]] == [f"client-{number}" for number in range(9)]
    dispose(*notifications)
    assert descriptors() == before
    # From then on all is well again.
    assert manager.store("client-99", 0)
    (last,) = notified.all()
    dispose(last)


def test_a_manager_that_is_not_there_is_waited_for(tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    address = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(address))
    manager = ServiceManager.from_environment()
    manager.attach(loop)
    manager.ready("one")
    turn(loop, 3)
    with Notified(address) as notified:
        notifications: list[Notification] = []
        loop.every(0.01, lambda: None)

        def received() -> bool:
            notifications.extend(notified.all())
            return bool(notifications)

        turn_until(loop, received, "the notification")
        assert lines(notifications) == [["READY=1", "STATUS=one"]]
        assert manager.lost == 0
        manager.close()


def test_an_unsendable_notification_is_dropped_and_the_next_is_sent(
    manager: ServiceManager, notified: Notified
) -> None:
    assert not manager.store("client-1", 1_000_000)  # a descriptor that is not open
    assert manager.lost == 1
    manager.status("on")
    assert lines(notified.all()) == [["STATUS=on"]]


INFLIGHT = f"""
import os, resource
from bccnd.net.loop import Loop
from bccnd.net.service_manager import ServiceManager
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.setgid({NOBODY})
os.setuid({NOBODY})
loop, manager = Loop(), ServiceManager.from_environment()
manager.attach(loop)
for number in range(40):
    assert manager.store(f"client-{{number}}", *[0] * 10 if number < 7 else [0])
assert manager._queue and len(manager._queue) < 40
print("waiting", flush=True)
def look():
    if not manager._queue: loop.stop()
loop.every(0.01, look)
loop.run()
print(manager.lost)
"""


@pytest.mark.root
def test_too_many_descriptors_in_flight_wait_until_some_have_arrived(tmp_path: Path) -> None:
    need_root("becoming another user")
    address = f"@bccnd-test-{secrets.token_hex(8)}"
    with (
        Notified(address) as notified,
        subprocess.Popen(
            [sys.executable, "-c", INFLIGHT],
            cwd=ROOT,
            env={**os.environ, "NOTIFY_SOCKET": address},
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waiting\n"
            notifications: list[Notification] = []
            while len(notifications) < 40:
                one = notified.receive()
                assert one is not None
                notifications.append(one)
                dispose(one)
            assert [one.value("FDNAME") for one in notifications] == [f"client-{number}" for number in range(40)]
            assert process.stdout.readline() == "0\n"
        finally:
            process.kill()


def test_close_sends_what_waits_or_gives_up(notified: Notified, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    manager = ServiceManager.from_environment()
    manager.attach(loop)
    fill(manager)
    manager.stopping()
    notified.receive()
    notified.receive()
    monkeypatch.setattr(service_manager, "CLOSE_TIMEOUT", 1000.0)
    manager.close()
    assert notified.all()[-1].lines == ["STOPPING=1", "STATUS=stopping"]
    assert manager.lost == 0

    manager = ServiceManager.from_environment()
    manager.attach(loop)
    fill(manager)
    assert manager.store("client-1", 0)
    monkeypatch.setattr(service_manager, "CLOSE_TIMEOUT", 0.2)
    began = time.monotonic()
    manager.close()
    assert time.monotonic() - began >= 0.2
    assert manager.lost == 2
    assert not manager.available
    manager.status("after the end")
    turn(loop, 2)
    assert descriptors() == before
    manager.close()
