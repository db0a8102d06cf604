"""What passes between us and the service manager: sockets are taken once, and nothing that is told blocks or is lost
without being counted."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.net import systemd
from bccnd.net.loop import Loop
from bccnd.net.systemd import MAX_STATUS, Manager, take_sockets
from tests.activation import Notified, Told, launch
from tests.support import NOBODY, ROOT, need_root, turn, turn_until

# -- what was passed

TAKER = """
import json, os, sys
from bccnd.net.systemd import take_sockets
if sys.argv[1:]: os.environ.update(json.loads(sys.argv[1]))
taken = take_sockets()
left = [name for name in os.environ if name.startswith("LISTEN_")]
print(json.dumps([taken, [os.get_inheritable(fd) for _, fd in taken], [os.fstat(fd).st_ino for _, fd in taken], left,
                  take_sockets()]))
"""


def taken_by(passed: list[tuple[str, int]], **changes: str) -> tuple[list[tuple[str, int]], list[bool], list[int]]:
    """What a program takes that is passed these descriptors: names and numbers, whether others would inherit them, and
    which files they are."""
    command = [*launch(passed), sys.executable, "-c", TAKER, json.dumps(changes)]
    done = subprocess.run(
        command, cwd=ROOT, pass_fds=[one for _, one in passed], capture_output=True, text=True, check=True
    )
    taken, inheritable, files, left, again = json.loads(done.stdout)
    assert left == [], "others would take them for theirs"
    assert again == [], "taken twice"
    return [(name, fd) for name, fd in taken], inheritable, files


@pytest.fixture
def pipes() -> Iterator[list[int]]:
    ends = [end for _ in range(3) for end in os.pipe()]
    yield ends
    for end in ends:
        os.close(end)


def test_descriptors_are_taken_with_their_names_in_order_and_nobody_inherits_them(pipes: list[int]) -> None:
    names = ["udp", "client-12", "bus", "udp", "255.255.255.255#5400", ""]
    taken, inheritable, files = taken_by(list(zip(names, pipes, strict=True)))
    assert taken == list(zip(names, range(3, 9), strict=True))
    assert not any(inheritable)
    assert files == [os.fstat(end).st_ino for end in pipes]


def test_what_was_passed_to_somebody_else_is_not_taken(pipes: list[int]) -> None:
    for pid in ("1", "", "x", "-1", "٣"):
        assert taken_by([("bus", pipes[0])], LISTEN_PID=pid)[0] == []


@pytest.mark.parametrize("names", ["", "one", "one:two:three", ":::"])
def test_names_that_do_not_fit_the_descriptors_are_no_names(pipes: list[int], names: str) -> None:
    taken, _, _ = taken_by([("bus", pipes[0]), ("udp", pipes[1])], LISTEN_FDNAMES=names)
    assert taken == [("unknown", 3), ("unknown", 4)]


@pytest.mark.parametrize(("count", "taken"), [("0", 0), ("1", 1), ("9", 2), ("", 0), ("-2", 0), ("two", 0)])
def test_only_descriptors_that_are_open_are_taken(pipes: list[int], count: str, taken: int) -> None:
    # Not more than there are: what else is open behind them is nothing that was passed, but nobody can know.
    found, _, _ = taken_by([("bus", pipes[0]), ("udp", pipes[1])], LISTEN_FDS=count)
    assert len(found) == taken


def test_without_anything_passed_nothing_is_taken() -> None:
    assert take_sockets({}) == []
    assert take_sockets({"LISTEN_PID": str(os.getpid())}) == []


# -- what is told


@pytest.fixture(params=["path", "abstract"])
def notified(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Notified]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@bccnd-test-{secrets.token_hex(8)}"
    with Notified(address) as one:
        yield one


@pytest.fixture
def loop() -> Iterator[Loop]:
    one = Loop()
    yield one
    one.close()


@pytest.fixture
def manager(notified: Notified, loop: Loop) -> Iterator[Manager]:
    """It is closed before the loop, as in the daemon."""
    one = Manager.from_environment({"NOTIFY_SOCKET": notified.address})
    assert one.listens
    yield one
    one.close()


def lines(told: list[Told]) -> list[list[str]]:
    return [one.lines for one in told]


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def fill(manager: Manager) -> int:
    """Tell as much as the manager's socket holds; how much that was."""
    count = 0
    while not manager._queue:
        manager.extend_timeout(count)
        count += 1
    return count


def empty(notified: Notified, loop: Loop) -> list[Told]:
    """Read all there is, while the loop turns, until nothing comes any more."""
    found: list[Told] = []
    quiet = 0
    while quiet < 3:
        turn(loop)
        new = notified.all()
        found += new
        quiet = 0 if new else quiet + 1
    return found


def test_each_call_is_the_notification_it_stands_for(manager: Manager, notified: Notified) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    manager.status("starting")
    manager.extend_timeout(1.5)
    manager.ready("serving 3 clients")
    manager.reloading()
    manager.alive()
    manager.forget("client-7")
    manager.stopping()
    told = notified.all()
    stamp = told[3].value("MONOTONIC_USEC")
    assert before <= int(stamp or 0) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert lines(told) == [
        ["STATUS=starting"],
        ["EXTEND_TIMEOUT_USEC=1500000"],
        ["READY=1", "STATUS=serving 3 clients"],
        ["RELOADING=1", f"MONOTONIC_USEC={stamp}"],
        ["WATCHDOG=1"],
        ["FDSTOREREMOVE=1", "FDNAME=client-7"],
        ["STOPPING=1", "STATUS=stopping"],
    ]
    assert manager.lost == 0
    # The manager believes only who is the service's main process.
    assert notified.senders == {os.getpid()}


def test_descriptors_are_stored_under_their_name_and_not_polled(manager: Manager, notified: Notified) -> None:
    one, other = os.pipe()
    try:
        assert manager.store("client-7", one)
        assert manager.store("pair", one, other)
        first, second = notified.all()
        assert first.lines == ["FDSTORE=1", "FDNAME=client-7", "FDPOLL=0"]
        assert [os.fstat(fd).st_ino for fd in first.descriptors] == [os.fstat(one).st_ino]
        assert len(second.descriptors) == 2
        for fd in (*first.descriptors, *second.descriptors):
            os.close(fd)
    finally:
        os.close(one)
        os.close(other)


def test_a_status_is_told_only_when_it_has_changed(manager: Manager, notified: Notified) -> None:
    manager.ready("fine")
    for text in ("fine", "fine", "better", "better", " better\n"):
        manager.status(text)
    assert lines(notified.all()) == [["READY=1", "STATUS=fine"], ["STATUS=better"]]


def test_a_fault_of_several_lines_is_one_line_and_orders_nothing(manager: Manager, notified: Notified) -> None:
    manager.status("/etc/x:3: bad\n  remedy: good\nSTOPPING=1\r\nFDSTOREREMOVE=1\x1b[2J\0\udcff")
    (one,) = notified.all()
    assert one.lines == ["STATUS=/etc/x:3: bad; remedy: good; STOPPING=1; FDSTOREREMOVE=1?[2J??"]


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=2 * MAX_STATUS))
def test_whatever_a_status_holds_it_is_one_line_of_good_length(text: str) -> None:
    line = systemd._line(text)
    assert len(line) <= MAX_STATUS
    assert line.decode("utf-8").isprintable()


def test_without_a_manager_nothing_happens(loop: Loop) -> None:
    before = descriptors()
    for one in (Manager(), Manager.from_environment({}), Manager.from_environment({"NOTIFY_SOCKET": ""})):
        assert not one.listens
        one.attach(loop)
        one.ready("x")
        one.status("y")
        one.alive()
        assert not one.store("client-1", 0)
        one.forget("client-1")
        assert one.lost == 0
        one.close()
    assert descriptors() == before


@pytest.mark.parametrize("address", ["vsock:2:1234", "relative", "unix:/x"])
def test_an_address_of_another_kind_is_said_and_nothing_else(address: str, caplog: pytest.LogCaptureFixture) -> None:
    one = Manager.from_environment({"NOTIFY_SOCKET": address})
    one.ready("x")
    one.close()
    assert not one.listens
    assert address in caplog.text


@pytest.mark.parametrize(
    ("environment", "seconds", "room"),
    [
        ({}, 0, 0),
        ({"WATCHDOG_USEC": "10000000"}, 10, 0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid()), "FDSTORE": "4096"}, 0.5, 4096),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, 0, 0),
        ({"WATCHDOG_USEC": "soon", "FDSTORE": "many"}, 0, 0),
        ({"WATCHDOG_USEC": "-1", "FDSTORE": ""}, 0, 0),
    ],
)
def test_the_watchdog_and_the_store_are_read_from_the_environment(
    environment: dict[str, str], seconds: float, room: int
) -> None:
    one = Manager.from_environment({"NOTIFY_SOCKET": "/nowhere", **environment})
    assert (one.watchdog, one.room) == (seconds, room)
    one.close()


def test_the_loop_feeds_the_watchdog_twice_in_its_time(notified: Notified, loop: Loop) -> None:
    one = Manager(notified.address, watchdog=0.1)
    one.attach(loop)
    loop.later(0.52, loop.stop)
    loop.run()
    assert 8 <= lines(notified.all()).count(["WATCHDOG=1"]) <= 10
    one.close()


def test_no_watchdog_is_fed_that_nobody_has_asked_for(manager: Manager, notified: Notified, loop: Loop) -> None:
    manager.attach(loop)
    loop.later(0.1, loop.stop)
    loop.run()
    assert notified.all() == []


# -- a manager that does not read


def test_what_is_not_taken_at_once_waits_in_order_and_keeps_its_descriptors(
    manager: Manager, notified: Notified, loop: Loop
) -> None:
    manager.attach(loop)
    before = descriptors()
    sent = fill(manager)
    reader, writer = os.pipe()
    assert manager.store("client-1", reader)
    os.close(reader)  # the client has left meanwhile
    manager.forget("client-1")
    manager.ready("late")
    told = empty(notified, loop)
    assert [one.value("EXTEND_TIMEOUT_USEC") for one in told[:sent]] == [f"{n * 1_000_000}" for n in range(sent)]
    assert [one.lines[0] for one in told[sent:]] == ["FDSTORE=1", "FDSTOREREMOVE=1", "READY=1"]
    (kept,) = told[sent].descriptors
    os.write(writer, b"still open")
    assert os.read(kept, 100) == b"still open"
    os.close(kept)
    os.close(writer)
    assert descriptors() == before, "a copy was left open"
    assert manager.lost == 0


def test_a_manager_that_stands_still_costs_the_loop_nothing(manager: Manager, loop: Loop) -> None:
    manager.attach(loop)
    fill(manager)
    turn(loop, 3)
    spent = time.process_time()
    loop.later(0.3, loop.stop)
    loop.run()
    assert time.process_time() - spent < 0.1


def test_of_what_waits_only_the_latest_status_and_one_sign_of_life_is_told(
    manager: Manager, notified: Notified, loop: Loop
) -> None:
    manager.attach(loop)
    sent = fill(manager)
    for number in range(100):
        manager.status(f"number {number}")
        manager.alive()
    manager.forget("client-1")
    told = empty(notified, loop)
    assert lines(told[sent:]) == [["STATUS=number 99"], ["WATCHDOG=1"], ["FDSTOREREMOVE=1", "FDNAME=client-1"]]
    assert manager.lost == 0


def test_a_queue_that_is_full_gives_up_the_newest_counts_it_and_says_so(
    manager: Manager, notified: Notified, loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(systemd, "MAX_WAITING", 10)
    manager.attach(loop)
    fill(manager)
    before = descriptors()
    stored = [manager.store(f"client-{number}", 0) for number in range(20)]
    assert stored == [True] * 9 + [False] * 11
    assert manager.lost == 11
    assert caplog.text.count("was given up") == 1
    told = empty(notified, loop)
    assert [one.value("FDNAME") for one in told[-9:]] == [f"client-{number}" for number in range(9)]
    for one in told:
        for fd in one.descriptors:
            os.close(fd)
    assert descriptors() == before
    # From then on all is well again.
    assert manager.store("client-99", 0)
    (last,) = notified.all()
    os.close(last.descriptors[0])


def test_before_there_is_a_loop_things_wait_for_it(manager: Manager, notified: Notified, loop: Loop) -> None:
    fill(manager)
    manager.ready("x")
    notified.all()
    manager.status("y")
    assert notified.all() == []
    manager.attach(loop)
    assert [one.lines[0] for one in empty(notified, loop)][-2:] == ["READY=1", "STATUS=y"]


def test_a_manager_that_comes_anew_is_told_at_once(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    first = Notified(address)
    manager = Manager(str(address))
    manager.ready("one")
    assert lines(first.all()) == [["READY=1", "STATUS=one"]]
    first.close()
    with Notified(address) as second:
        manager.status("two")
        assert lines(second.all()) == [["STATUS=two"]]
    manager.close()


def test_a_manager_that_is_not_there_is_waited_for(tmp_path: Path, loop: Loop) -> None:
    address = tmp_path / "notify"
    manager = Manager(str(address))
    manager.attach(loop)
    manager.ready("one")
    turn(loop, 3)
    with Notified(address) as notified:
        told: list[Told] = []
        loop.every(0.01, lambda: None)

        def heard() -> bool:
            told.extend(notified.all())
            return bool(told)

        turn_until(loop, heard, "the notification")
        assert lines(told) == [["READY=1", "STATUS=one"]]
        assert manager.lost == 0
        manager.close()


def test_what_can_never_be_sent_is_given_up_and_the_next_is_told(manager: Manager, notified: Notified) -> None:
    closed = os.dup(0)
    os.close(closed)
    assert not manager.store("client-1", closed)
    assert manager.lost == 1
    manager.status("on")
    assert lines(notified.all()) == [["STATUS=on"]]


INFLIGHT = f"""
import os, resource, sys
from bccnd.net.loop import Loop
from bccnd.net.systemd import Manager
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.setgid({NOBODY})
os.setuid({NOBODY})
loop, manager = Loop(), Manager(sys.argv[1])
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
def test_who_has_too_many_descriptors_under_way_waits_until_some_have_arrived(tmp_path: Path) -> None:
    need_root("becoming somebody else")
    address = f"@bccnd-test-{secrets.token_hex(8)}"
    with (
        Notified(address) as notified,
        subprocess.Popen(
            [sys.executable, "-c", INFLIGHT, address], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waiting\n"
            told: list[Told] = []
            while len(told) < 40:
                one = notified.hear()
                assert one is not None
                told.append(one)
                for fd in one.descriptors:
                    os.close(fd)
            assert [one.value("FDNAME") for one in told] == [f"client-{number}" for number in range(40)]
            assert process.stdout.readline() == "0\n"
        finally:
            process.kill()


def test_leaving_brings_out_what_waits_for_who_reads_and_gives_up_on_who_does_not(
    notified: Notified, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    manager = Manager(notified.address)
    manager.attach(loop)
    fill(manager)
    manager.stopping()
    notified.hear()
    notified.hear()
    monkeypatch.setattr(systemd, "FAREWELL", 20.0)
    began = time.monotonic()
    manager.close()
    assert time.monotonic() - began < 10
    assert notified.all()[-1].lines == ["STOPPING=1", "STATUS=stopping"]
    assert manager.lost == 0

    manager = Manager(notified.address)
    manager.attach(loop)
    fill(manager)
    assert manager.store("client-1", 0)
    monkeypatch.setattr(systemd, "FAREWELL", 0.2)
    began = time.monotonic()
    manager.close()
    assert 0.2 <= time.monotonic() - began < 5
    assert manager.lost == 2
    assert not manager.listens
    manager.status("nobody hears this")
    turn(loop, 2)
    assert descriptors() == before
    manager.close()
