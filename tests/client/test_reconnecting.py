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
from bccnd.client.event_queues import Away, Gap, Reconnected, Refusal
from bccnd.client.message import Message
from bccnd.client.transport import dial
from bccnd.core.formats.bus_address import write_address
from bccnd.core.wire import frames
from tests.client.sessions import BATCH, META, Bare, Join, batch, both, frame, impatient, restarted, without_syncs
from tests.endpoint.segments import soon
from tests.refusals import refused
from tests.support import PATIENCE

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


@both
def test_an_absence_can_be_an_event_and_is_logged(bare: Bare, join: Join, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "bccnd.client"), join(bare.address, away=True) as bus:
        bus.subscribe("a")
        bus.sync()
        there = [bus.connected]
        bare.stop()
        event = bus.receive(PATIENCE)
        assert isinstance(event, Away)
        assert event.reason
        assert bus.receive(0.05) is None
        there.append(bus.connected)
        bare.start()
        assert isinstance(bus.receive(PATIENCE), Reconnected)
        assert bus.sync() == []
        there.append(bus.connected)
        bare.send(frames.gap(3), frames.error("bad_channel", b"x"))
        assert [bus.receive(PATIENCE), bus.receive(PATIENCE)] == [Gap(3), Refusal("bad_channel", "x")]
    there.append(bus.connected)
    assert there == [True, False, True, False]
    levels = [record.levelname for record in caplog.records if record.name == "bccnd.client"]
    assert levels == ["WARNING", "INFO", "WARNING", "WARNING"]


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


def test_modes_are_said_at_once_and_to_the_next_daemon(bare: Bare, bus: Connection) -> None:
    bus.subscribe("a", "b/", "a")
    bus.tag("door")
    bus.blocking()
    for on in (True, False):
        bus.echo(on)
    for soft in ("queue", "discard", "error", "block"):
        bus.blocking(soft=soft)
    for hard in ("block", "error", "discard"):
        bus.blocking(hard=hard)
    for order in ("queue", "random", "stack"):
        bus.order(order)
    for wrong in (("never", None), (None, "queue"), ("block", "never")):
        with refused("bad_mode"):
            bus.blocking(*wrong)
    with refused("bad_mode"):
        bus.order("up")
    bus.local(True)
    bus.unsubscribe("b/")
    bus.sync()
    assert without_syncs(bare.received[0])[6:] == [
        *(b"CMSG echo/on", b"CMSG echo/off"),
        *(b"CMSG blocking/soft/" + mode for mode in (b"queue", b"discard", b"error", b"block")),
        *(b"CMSG blocking/hard/" + mode for mode in (b"block", b"error", b"discard")),
        *(b"CMSG order/" + order for order in (b"queue", b"random", b"stack")),
        *(b"CMSG !/bccn/local/on", b"UNSUB b/"),
    ]
    bare.restart()
    bus.publish("a", "after")
    bus.sync()
    held = [
        *(META, b"CMSG !/bccn/tag\0door", BATCH, b"CMSG echo/off", b"CMSG blocking/soft/block"),
        *(b"CMSG blocking/hard/discard", b"CMSG order/stack", b"CMSG !/bccn/local/on", b"SUB a", b"SUB a"),
    ]
    assert without_syncs(bare.received[1]) == [*held, b"MSG a\0after"]
    assert bare.received[1].index(b"MSG a\0after") == len(held) + 1  # only when the daemon has said that it is there


@both
def test_batches_are_asked_for_unless_they_are_declined(bare: Bare, join: Join) -> None:
    with join(bare.address, batch=False) as bus:
        for wanted, mode in ((None, []), (True, [BATCH]), (False, [b"CMSG !/bccn/batch/off"])):
            if wanted is not None:
                bus.batch(wanted)
            restarted(bare, bus)
            assert without_syncs(bare.received[-1]) == [META, *mode]


@both
def test_asking_keeps_what_comes_before_the_answer(bare: Bare, join: Join) -> None:
    numbers = [b"%d" % number for number in range(103)]
    bare.answers[b"SUB a"] = [*(frame(b"a", number) for number in numbers[:50]), batch(*numbers[50:100])]
    whoami = frames.control(frames.WHOAMI, b"me")
    bare.answers[b"CMSG !/bccn/whoami"] = [batch(*numbers[100:102]), whoami, batch(numbers[102])]
    with join(bare.address) as bus:
        bus.subscribe("a")
        first = bus.receive(PATIENCE)
        assert bus.identity() == "me"  # in the middle of a batch
        assert bus.sync() == []
        found = iter(bus)
        got = [first, *(next(found) for _ in range(102))]
        assert [one.payload for one in got if isinstance(one, Message)] == numbers


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


def test_a_mode_that_is_refused_is_not_asked_for_again(bare: Bare, bus: Connection) -> None:
    bare.answers[b"CMSG !/bccn/tag\0two words"] = [frames.error("bad_tag", b"two words")]
    bare.answers[b"CMSG !/bccn/tag\0mine"] = [frames.error("not_permitted", frames.TAG)]
    bare.answers[b"CMSG !/bccn/local/on"] = [frames.error("unknown_control", b"!/bccn/local/on")]
    bus.tag("fine")
    for tag, reason in (("two words", "bad_tag"), ("mine", "not_permitted")):
        with refused(reason):
            bus.tag(tag)
    with refused("unknown_control"):
        bus.local(True)
    assert bus.sync() == []
    for held in ([META, b"CMSG !/bccn/tag\0fine", BATCH], [META, BATCH]):
        restarted(bare, bus)
        assert without_syncs(bare.received[-1]) == held
        bus.tag("")
    bare.answers[BATCH] = [frames.error("unknown_control", frames.BATCH_ON)]  # from an older daemon
    restarted(bare, bus)
    assert bus.sync() == []


@both
def test_iterating_raises_what_was_refused_in_its_place(
    bare: Bare, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.answers[b"SUB a"] = [frame(b"b", b"1"), frames.error("not_permitted", b"a"), frame(b"b", b"2")]
    with join(bare.address) as bus:
        bus.subscribe("a")
        assert next(iter(bus)).payload == b"1"
        with refused("not_permitted", "'a'"):
            next(iter(bus))
        assert next(iter(bus)).payload == b"2"
    monkeypatch.setattr("bccnd.client.session.LONGEST", 0.02)
    bare.refuses = frames.error("too_many_clients", b"")
    with join(bare.address) as bus, refused("too_many_clients", "does not serve"):
        next(iter(bus))


def test_a_sync_tells_of_a_daemon_that_went_unconfirmed(bare: Bare, bus: Connection) -> None:
    bus.publish("a", "confirmed")
    bus.sync()
    bare.restart()
    assert bus.sync() == []
    bus.publish("a", "not confirmed")
    bare.heard(b"MSG a\0not confirmed")
    bare.restart()
    with refused("connection_lost"):
        bus.sync()
    bus.publish("a", "after")
    assert bus.sync() == []
    assert without_syncs(bare.received[2])[2:] == [b"MSG a\0after"]  # what a daemon has taken is not sent to the next


def test_sending_waits_for_the_daemon_but_not_for_ever(
    bare: Bare, bus: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
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


def test_what_cannot_be_sent_is_refused_here(bare: Bare, bus: Connection) -> None:
    bus.subscribe("a")
    calls: list[tuple[str, str, Callable[[], object]]] = [
        ("bad_pattern", "NUL", lambda: bus.subscribe("b", "\0x")),
        ("bad_pattern", "NUL", lambda: bus.unsubscribe("a", "a\0x")),
        ("bad_pattern", "NUL", lambda: bus.listen("\0x", print)),
        ("bad_pattern", "NUL", lambda: bus.respond("a\0", lambda _question: None)),
        ("bad_channel", "NUL", lambda: bus.publish("a\0b")),
        ("bad_channel", "NUL", lambda: bus.send_to("relay01/\0", "x")),
        ("bad_channel", "NUL", lambda: bus.request("a\0b", timeout=0.1)),
        ("unknown_control", "NUL", lambda: bus.ask("!/bccn/stats\0clients", timeout=0.1)),
        ("too_long", "", lambda: bus.publish("a", b"x" * (4 << 20))),
        ("bad_target", "", lambda: bus.send_to("")),
    ]
    for reason, detail, call in calls:
        with refused(reason, detail):
            call()
    for number in range(2):
        bus.sync()
        assert without_syncs(bare.received[number]) == [META, BATCH, b"SUB a"]
        restarted(bare, bus)


def test_much_can_be_restored_while_much_comes(bare: Bare, bus: Connection) -> None:
    patterns = [f"{number:04}/{'x' * 200}" for number in range(2000)]
    bus.subscribe(*patterns)
    bus.sync()
    bare.answers = {b"SUB " + pattern.encode(): [frame(b"a", b"y" * 1000)] for pattern in patterns}
    restarted(bare, bus)
    assert all(isinstance(bus.receive(PATIENCE), Message) for _ in patterns)
    assert without_syncs(bare.received[1])[2:] == [b"SUB " + pattern.encode() for pattern in patterns]


@both
@pytest.mark.parametrize("noise", [b"GET / HTTP/1.0", batch(b"x", b"y")[:-1]])
def test_what_speaks_no_frames_is_no_daemon(bare: Bare, join: Join, noise: bytes) -> None:
    with join(bare.address) as bus:
        bus.sync()
        bare.send(frame(b"a", b"1"), noise, frame(b"a", b"2"))
        assert [type(bus.receive(PATIENCE)) for _ in range(2)] == [Message, Reconnected]
    with join(bare.address, reconnect=False) as bus:
        bus.sync()
        bare.send(noise)
        with refused("connection_lost", "no frame"):
            bus.receive(PATIENCE)


@both
def test_without_reconnecting_a_loss_ends_after_what_came(bare: Bare, join: Join) -> None:
    with join(bare.address, reconnect=False) as bus:
        bus.sync()
        bare.send(frame(b"a", b"1"), batch(b"2", b"3"))
        bare.restart()
        for _ in range(2):
            with refused("connection_lost"):
                bus.publish("a")
        events = [bus.receive() for _ in range(3)]
        assert [event.payload for event in events if isinstance(event, Message)] == [b"1", b"2", b"3"]
        calls: list[Callable[[], object]] = [
            *(bus.receive, lambda: bus.receive(0), bus.sync, bus.identity, lambda: next(iter(bus))),
            *(lambda: bus.subscribe("a"), lambda: bus.unsubscribe("a")),
        ]
        for call in calls:
            with refused("connection_lost"):
                call()
        assert len(bare.received) == 1


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
