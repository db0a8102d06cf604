"""Both clients with a scripted daemon that comes and goes."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import bccnd
from bccnd.client.bus import Connection
from bccnd.client.event_queues import Reconnected
from bccnd.client.message import Message
from bccnd.client.transport import dial
from bccnd.core.formats.bus_address import write_address
from bccnd.core.wire import frames
from tests.client.sessions import BATCH, META, Bare, Join, both, frame, restarted, without_syncs
from tests.endpoint.segments import soon
from tests.refusals import refused
from tests.support import PATIENCE

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


@both
def test_connecting_waits_for_a_daemon_if_asked_to(join: Join, tmp_path: Path) -> None:
    path = str(tmp_path / "bus.sock")
    with refused("no_daemon"):
        join(path, wait=0.05)
    made: list[Bare] = []
    for patience in (PATIENCE, None):
        with soon(lambda: made.append(Bare(path))), join(path, wait=patience) as bus:
            bus.sync()
        made.pop().close()


def test_as_much_as_a_packet_holds_is_taken_from_one(bare: Bare, bus: Connection) -> None:
    many = [frames.message(b"", b"")] * 7000
    large = [frame(b"a", b"x" * 1000)] * 300  # more than the daemon makes, less than a packet may have
    bus.sync()
    bare.last.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    bare.send(frames.batch(many), frames.batch(large), frame(b"end"))
    found = iter(bus)
    got = [next(found) for _ in range(7300)]
    assert {one.chan for one in got[:7000]} == {""}
    assert {one.payload for one in got[7000:]} == {b"x" * 1000}
    assert next(found).chan == "end"


@both
def test_iterating_raises_that_this_program_is_not_served(
    bare: Bare, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccnd.client.session.LONGEST", 0.02)
    bare.refuses = frames.error("too_many_clients", b"")
    with join(bare.address) as bus, refused("too_many_clients", "does not serve"):
        next(iter(bus))


def test_sending_waits_for_the_daemon_but_not_for_ever(
    bare: Bare, bus: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccnd.client.session.PATIENCE", 0.1)
    bus.subscribe("a")
    bus.sync()
    bare.stop()
    calls: list[Callable[[], object]] = [
        *(lambda: bus.publish("a"), lambda: bus.echo(True), lambda: bus.sync(0.1)),
        lambda: bus.ask(frames.WHOAMI, timeout=0.1),
    ]
    for call in calls:
        with refused("connection_lost", bare.address):
            call()
    bare.start()
    assert isinstance(bus.receive(PATIENCE), Reconnected)
    bus.sync()
    assert without_syncs(bare.received[1]) == [META, BATCH, b"SUB a"]  # what has failed was not done


def test_a_question_is_asked_again_when_its_daemon_goes_away(bare: Bare, bus: Connection) -> None:
    bus.sync()

    def go_away() -> None:
        bare.heard(b"CMSG !/bccn/whoami")
        bare.answers[b"CMSG !/bccn/whoami"] = [frames.control(frames.WHOAMI, b"me")]
        bare.restart()

    with soon(go_away):
        assert bus.identity() == "me"


class Ending(socket.socket):
    """A socket whose connection is closed by a signal handler when a call is about to wait for it."""

    end: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        type(self).end()
        return super().fileno()


def test_a_call_is_told_when_a_signal_handler_closes(bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.client.transport.dial", lambda address: Ending(fileno=dial(address).detach()))
    bus = bccnd.connect(str(bare.address))
    monkeypatch.setattr(Ending, "end", bus.close)
    with refused("connection_lost"):
        bus.receive(PATIENCE)


def test_much_can_be_restored_while_much_comes(bare: Bare, bus: Connection) -> None:
    patterns = [f"{number:04}/{'x' * 200}" for number in range(2000)]
    bus.subscribe(*patterns)
    bus.sync()
    bare.answers = {b"SUB " + pattern.encode(): [frame(b"a", b"y" * 1000)] for pattern in patterns}
    restarted(bare, bus)
    assert all(isinstance(bus.receive(PATIENCE), Message) for _ in patterns)
    assert without_syncs(bare.received[1])[2:] == [b"SUB " + pattern.encode() for pattern in patterns]


@both
def test_an_abstract_address_can_be_named_or_written_out(join: Join, tmp_path: Path) -> None:
    name = f"bccnd-test-{os.getpid()}-{tmp_path.name}"
    full = f"\0bccnd-test-{os.getpid()}".encode().ljust(108, b"\0")
    for address, text in ((f"\0{name}".encode(), f"@{name}"), (full, write_address(full))):
        with Bare(address) as bare, join(text) as bus:
            bus.sync()
            restarted(bare, bus)


@both
def test_what_is_no_address_of_a_daemon_is_said_to_be_so(join: Join, tmp_path: Path) -> None:
    for path in ("@", "/dev/fd/3", "/dev/unix/abstract/xyz", "/dev/unix/abstract/41", "a\0b"):
        with refused("bad_address"):
            join(path)
    nowhere, dead = tmp_path / "nowhere.sock", tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(dead))
    for wrong, why in ((nowhere, "No such file"), (dead, "refused"), (tmp_path / ("x" * 200), "long")):
        with refused("no_daemon", wrong, why):
            join(str(wrong))


@both
def test_a_client_that_finds_the_backlog_full_waits(join: Join, tmp_path: Path) -> None:
    path = str(tmp_path / "bus.sock")
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(path)
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                opened.enter_context(dial(path))
        with soon(lambda: opened.enter_context(listener.accept()[0])), join(path):
            pass


@both
def test_the_daemon_is_found_again_from_another_directory(
    join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Bare(str(tmp_path / "bus.sock")) as bare, join("bus.sock") as bus:
        bus.sync()
        monkeypatch.chdir("/")
        restarted(bare, bus)
        assert bus.path == "bus.sock"
