"""The service manager: sockets are taken once; notifications never block, and are counted if they are lost."""

from __future__ import annotations

import errno
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.net import service_manager
from bccnd.net.loop import Loop
from bccnd.net.service_manager import MAX_STATUS, ServiceManager, take_sockets
from tests.activation import Notified, launch
from tests.limits import descriptors
from tests.support import ROOT, turn_until

TAKER = """
import json, os, sys
from bccnd.net.service_manager import take_sockets
os.environ.update(json.loads(sys.argv[1]))
taken = take_sockets()
files = [os.fstat(fd).st_ino for _, fd in taken]
inherited = [name for name, fd in taken if os.get_inheritable(fd)]
left = [name for name in os.environ if name.startswith("LISTEN_")]
print(json.dumps([taken, files, inherited + left + take_sockets()]))
"""


@pytest.fixture
def pipes() -> Iterator[list[int]]:
    ends = [end for _ in range(3) for end in os.pipe()]
    yield ends
    for end in ends:
        os.close(end)


NAMES = ["udp", "client-12", "bus", "udp", "255.255.255.255#5400", ""]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, NAMES),
        ({"LISTEN_FDNAMES": "one:two"}, ["unknown"] * 6),
        ({"LISTEN_FDS": "1"}, ["unknown"]),
        # Either all of them are open or none was passed.
        *(({"LISTEN_FDS": count}, []) for count in ("9", "", "two")),
        *(({"LISTEN_PID": pid}, []) for pid in ("1", "x")),
    ],
)
def test_descriptors_are_taken_once_with_their_names(
    pipes: list[int], changes: dict[str, str], names: list[str]
) -> None:
    command = [*launch(list(zip(NAMES, pipes, strict=True))), sys.executable, "-c", TAKER, json.dumps(changes)]
    done = subprocess.run(command, cwd=ROOT, pass_fds=pipes, capture_output=True, text=True, check=True)
    taken = [[name, number] for number, name in enumerate(names, 3)]
    assert json.loads(done.stdout) == [taken, [os.fstat(end).st_ino for end in pipes[: len(names)]], []]


def fields(message: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in message.split("\n"))


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_each_call_is_the_notification_it_stands_for(
    tmp_path: Path, kind: str, pipes: list[int], monkeypatch: pytest.MonkeyPatch
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
        assert manager.store("client-7", *pipes[:2])
        manager.forget("client-7")
        manager.stopping()
        notifications = notified.all()
        stamp = notifications[3].value("MONOTONIC_USEC")
        assert before <= int(stamp or 0) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert [one.lines for one in notifications] == [
            ["STATUS=starting"],
            ["EXTEND_TIMEOUT_USEC=1500000"],
            ["READY=1", "STATUS=serving 3 clients"],
            ["RELOADING=1", f"MONOTONIC_USEC={stamp}"],
            ["WATCHDOG=1"],
            ["FDSTORE=1", "FDNAME=client-7", "FDPOLL=0"],
            ["FDSTOREREMOVE=1", "FDNAME=client-7"],
            ["STOPPING=1", "STATUS=stopping"],
        ]
        assert [os.fstat(fd).st_ino for fd in notifications[5].descriptors] == [os.fstat(fd).st_ino for fd in pipes[:2]]
        for fd in notifications[5].descriptors:
            os.close(fd)
        # The manager believes only the main process of the service.
        assert (manager.lost, notified.senders) == (0, {os.getpid()})
        manager.close()


def test_a_manager_without_its_library_passes_no_sockets(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "systemd", None)
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    assert take_sockets() == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]


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


OURS = {"WATCHDOG_PID": str(os.getpid())}


@pytest.mark.parametrize(
    ("environment", "watchdog", "max_stored"),
    [
        ({}, 0, 0),
        ({"WATCHDOG_USEC": "10000000"}, 10, 0),
        ({"WATCHDOG_USEC": "500000", "FDSTORE": "4096", **OURS}, 0.5, 4096),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, 0, 0),
        ({"WATCHDOG_USEC": "soon", "FDSTORE": "many"}, 0, 0),
        ({"WATCHDOG_USEC": "-1", "FDSTORE": "-1"}, 0, 0),
        (dict.fromkeys(["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "FDSTORE"], ""), 0, 0),
    ],
    ids=["none", "for any process", "ours", "of another", "no numbers", "negative", "empty"],
)
def test_watchdog_and_store_come_from_the_environment(
    environment: dict[str, str], watchdog: float, max_stored: int
) -> None:
    one = ServiceManager.from_environment(environment)
    assert (one.watchdog, one.max_stored, one.available) == (watchdog, max_stored, False)


# -- a manager that does not take what it is sent


class Other:
    """The other end: it takes ``room`` more notifications, and then answers with an error."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.files: list[list[int]] = []
        self.room = 0
        self.error = errno.EAGAIN
        self.attempts = 0

    def __call__(self, message: str, descriptors: Sequence[int]) -> None:
        self.attempts += 1
        if not self.room:
            raise OSError(self.error, os.strerror(self.error))
        self.room -= 1
        self.taken.append(message)
        self.files.append([os.fstat(fd).st_ino for fd in descriptors])


@pytest.fixture
def other() -> Other:
    return Other()


@pytest.fixture
def manager(other: Other, loop: Loop) -> Iterator[ServiceManager]:
    """It is closed before the loop, as in the daemon; no descriptor of what it has queued stays open."""
    before = descriptors()
    one = ServiceManager(other)
    one.attach(loop)
    yield one
    one.close()
    assert descriptors() == before


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=2 * MAX_STATUS))
def test_whatever_a_status_holds_it_is_one_line_of_good_length(text: str) -> None:
    other = Other()
    other.room = 2
    ServiceManager(other).status(f"x{text}")
    (message,) = other.taken
    line = message.removeprefix("STATUS=")
    assert len(line.encode()) <= MAX_STATUS
    assert line.isprintable()


def test_a_status_is_sent_when_it_has_changed(manager: ServiceManager, other: Other) -> None:
    other.room = 10
    manager.ready("fine")
    for text in ("fine", "fine", "better", "better", " better\n", "a: bad\n  remedy: good\nSTOPPING=1\r\x1b[2J\udcff"):
        manager.status(text)
    assert other.taken == [
        "READY=1\nSTATUS=fine",
        "STATUS=better",
        "STATUS=a: bad; remedy: good; STOPPING=1; ?[2J?",
    ]


@pytest.mark.parametrize(
    "error", [errno.EAGAIN, errno.ENOENT, errno.ECONNREFUSED, errno.ETOOMANYREFS], ids=errno.errorcode.get
)
def test_what_is_not_taken_waits_with_its_descriptors(
    manager: ServiceManager, other: Other, loop: Loop, error: int
) -> None:
    other.error = error
    reader, writer = os.pipe()
    inode = os.fstat(reader).st_ino
    assert manager.store("client-1", reader)
    for end in (reader, writer):
        os.close(end)  # the client has left meanwhile
    manager.forget("client-1")
    manager.ready("late")
    other.room = 3
    turn_until(loop, lambda: len(other.taken) == 3, "the notifications")
    assert [message.partition("\n")[0] for message in other.taken] == ["FDSTORE=1", "FDSTOREREMOVE=1", "READY=1"]
    assert other.files == [[inode], [], []]
    assert manager.lost == 0


def test_a_manager_that_takes_nothing_is_asked_ever_more_rarely(
    manager: ServiceManager, other: Other, loop: Loop
) -> None:
    manager.ready("x")
    loop.later(0.2, loop.stop)
    loop.run()
    assert other.attempts < 2 + 0.2 / service_manager.RETRY[0]


def test_only_the_latest_status_and_one_sign_of_life_wait(manager: ServiceManager, other: Other, loop: Loop) -> None:
    for number in range(100):
        manager.status(f"number {number}")
        manager.ping_watchdog()
    manager.forget("client-1")
    other.room = 3
    turn_until(loop, lambda: len(other.taken) == 3, "the notifications")
    assert other.taken == ["STATUS=number 99", "WATCHDOG=1", "FDSTOREREMOVE=1\nFDNAME=client-1"]
    assert manager.lost == 0


def test_a_full_queue_drops_the_newest_and_counts_and_logs_it(
    manager: ServiceManager,
    other: Other,
    loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(service_manager, "MAX_QUEUED", 10)
    stored = [manager.store(f"client-{number}", 0) for number in range(20)]
    assert stored == [True] * 10 + [False] * 10
    assert (manager.lost, [vars(record)["event"] for record in caplog.records]) == (10, ["manager_silent"])
    other.room = 11
    turn_until(loop, lambda: len(other.taken) == 10, "the notifications")
    assert [fields(message)["FDNAME"] for message in other.taken] == [f"client-{number}" for number in range(10)]
    assert manager.store("client-99", 0)  # from then on all is well again


def test_an_invalid_address_is_logged_once_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "relative")
    one = ServiceManager.from_environment()
    one.ready("x")
    one.ready("y")
    assert (one.lost, [vars(record)["event"] for record in caplog.records]) == (2, ["manager_silent"])


def test_what_cannot_be_sent_is_dropped_and_the_next_is_sent(manager: ServiceManager, other: Other, loop: Loop) -> None:
    assert not manager.store("client-1", 1_000_000)  # a descriptor that is not open
    other.error = errno.EPERM
    assert not manager.store("client-2", 0)
    other.room = 1
    manager.status("on")
    assert (manager.lost, other.taken) == (2, ["STATUS=on"])


def test_the_loop_feeds_the_watchdog_twice_in_its_time(other: Other, loop: Loop) -> None:
    other.room = 100
    manager = ServiceManager(other, watchdog=0.1)
    began = time.monotonic()
    manager.attach(loop)
    turn_until(loop, lambda: len(other.taken) == 4, "the fourth sign of life")
    assert time.monotonic() - began >= 4 * 0.05
    assert other.taken == ["WATCHDOG=1"] * 4
    manager.close()


@pytest.mark.parametrize("room", [3, 0], ids=["sends what waits", "gives up in time"])
def test_close_waits_for_a_manager_within_limits(other: Other, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    monkeypatch.setattr(service_manager, "CLOSE_TIMEOUT", 1000.0 if room else 0.2)
    before = descriptors()
    manager = ServiceManager(other)
    manager.status("a")
    manager.store("client-1", 0)
    manager.stopping()
    other.room = room
    manager.close()
    assert (len(other.taken), manager.lost) == ((3, 0) if room else (0, 3))
    manager.status("after the end")
    manager.close()
    assert (manager.available, len(other.taken), descriptors()) == (False, room, before)
