"""The client for programs, against a real bus: what it sends, what it makes of what comes, and how it ends."""

from __future__ import annotations

import errno
import gc
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from bccnd import paths
from bccnd.client.bus import Connection, connect
from bccnd.client.event_queues import Event, Reconnected, Refusal
from bccnd.client.message import Message
from bccnd.core.wire import frames
from bccnd.errors import BusError
from tests.client.sessions import Bare, Driven, Join, batch, frame
from tests.limits import descriptors
from tests.refusals import refused
from tests.support import PATIENCE, Hub, wait
from tests.turning import Do, turning


@pytest.fixture
def do(hub: Hub) -> Iterator[Do]:
    """Lets the bus serve; what is given to this function is done by the bus's thread."""
    with turning(hub.loop) as one:
        yield one


@pytest.fixture(params=[connect, Driven], ids=["blocking", "asyncio"])
def join(request: pytest.FixtureRequest) -> Join:
    return cast("Join", request.param)


@pytest.fixture
def one(hub: Hub, do: Do, join: Join) -> Iterator[Connection]:
    """A client of a bus that serves."""
    with join(hub.path) as connection:
        connection.sync(PATIENCE)
        yield connection


other = one


def message(connection: Connection, timeout: float = PATIENCE) -> Message:
    """The next event, which must be a message."""
    event = connection.receive(timeout)
    assert isinstance(event, Message)
    return event


def test_a_path_is_given_or_the_environments_or_the_default(
    hub: Hub, do: Do, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paths, "DEFAULT_SOCKET", str(tmp_path / "default"))
    monkeypatch.delenv("BCCN_SOCKET", raising=False)
    for path, used in ((None, "default"), ("", "default"), (str(tmp_path / "environment"), "environment")):
        if path is not None:
            monkeypatch.setenv("BCCN_SOCKET", path)
        with pytest.raises(BusError, match=used):
            connect()
    with connect(hub.path) as given:
        assert given.path == hub.path
    monkeypatch.setenv("BCCN_SOCKET", hub.path)
    with connect() as from_environment:
        assert from_environment.identity()


def test_a_connection_that_fails_leaves_nothing_open(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_sock: socket.socket, _frame: bytes) -> None:
        raise BrokenPipeError(errno.EPIPE, "gone")

    monkeypatch.setattr("bccnd.client.transport.give", fails)
    before = descriptors()
    with pytest.raises(BusError) as caught:
        connect(hub.path)
    after = descriptors()
    del caught
    gc.collect()
    assert after == before


def test_a_message_comes_with_all_that_is_known_of_it(hub: Hub, one: Connection, other: Connection) -> None:
    one.subscribe("a/")
    one.sync(PATIENCE)
    before = time.time_ns()
    other.publish("a/b", b"hello")
    other.publish("a/c", b"world")
    other.send_all("all")
    other.send_to(one.identity(), "me")
    first, second = message(one), message(one)
    known = (other.identity(), first.seq, "a/b", b"hello", "plain", "local", first.received_ns)
    assert first == Message(*known)
    assert tuple(first) == known
    assert second.seq == first.seq + 1
    assert before <= first.received_ns <= second.received_ns
    assert message(one)[2:5] == ("!", b"all", "all")
    assert message(one)[2:5] == (f"!{one.identity()}", b"me", "directed")
    assert b":%d:a/b|hello" % first.seq in hub.sent[0]


PAYLOADS = [b"", b"\0", b"|", b"a:1:2:b|", b"\n", bytes(range(256)), b"x" * 1300, b"y" * 200_000]
TEXTS = ["", "hello", "gr\xfc\xdfe", "\U0001f600", "\udcff"]


def test_a_payload_arrives_byte_for_byte_and_may_be_text(one: Connection) -> None:
    one.subscribe("a")
    one.publish("a")
    both: list[bytes | str] = [*PAYLOADS, *TEXTS]
    for payload in both:
        one.publish("a", payload)
    one.sync(PATIENCE)
    expected = [b"", *PAYLOADS, *(text.encode("utf-8", "surrogateescape") for text in TEXTS)]
    assert [message(one).payload for _ in expected] == expected


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "pure"])
def test_many_messages_are_sent_in_order_each_once(
    one: Connection, other: Connection, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    if not compiled:
        monkeypatch.setattr("bccnd.client.transport.find_library", lambda: "")
    large = [b"y" * 200_000] * 5  # more than the kernel takes at once
    payloads = [b"%d" % number for number in range(300)]
    one.subscribe("a")
    one.sync(PATIENCE)
    other.local(True)
    for sent in ([], payloads[:1], payloads, large, [*payloads[:70], large[0], *payloads[:70]]):
        other.publish_many(("a", payload) for payload in sent)
        assert other.sync(PATIENCE) == []
        assert [message(one).payload for _ in sent] == sent
    for wrong, reason in ((("a\0", ""), "bad_channel"), (("a", b"x" * 500_000), "too_long")):
        with refused(reason):
            other.publish_many([("a", "before"), wrong])


def test_a_busy_daemon_is_waited_for_as_long_as_asked(hub: Hub, join: Join) -> None:
    with join(hub.path) as connection:
        for _ in range(8):
            with refused("no_answer", hub.path):
                connection.ask(frames.WHOAMI, bytes(100_000), timeout=0.01)
        with refused("no_answer", hub.path):
            connection.sync(0.01)
        with turning(hub.loop):
            connection.sync(PATIENCE)
            connection.publish("two words")
            assert connection.sync(PATIENCE) == [Refusal("bad_channel", "two words")]


def test_a_request_that_was_given_up_takes_no_later_answer(bare: Bare, join: Join) -> None:
    bare.answers[b"CMSG !/bccn/stats\0keys"] = [b"CMSG !/bccn/stats\0keys"]
    with join(bare.address) as bus:
        for late in ([], [b"CMSG !/bccn/stats\0clients"]):
            with refused("no_answer"):
                bus.ask(frames.STATS, "clients", timeout=0.05)
            bare.send(*late)
            assert bus.ask(frames.STATS, "keys") == b"keys"


def test_receiving_waits_for_a_message_or_its_time(one: Connection, other: Connection) -> None:
    assert one.receive(0) is None
    assert one.receive(-1) is None
    before = time.monotonic()
    assert one.receive(0.02) is None
    assert time.monotonic() >= before + 0.02
    one.subscribe("a")
    one.sync(PATIENCE)
    other.publish("a", "x")
    other.publish("a", "y")
    other.sync(PATIENCE)
    assert message(one, 0).payload == b"x"  # though nothing has read it yet
    event = one.receive()  # for ever, if need be
    assert isinstance(event, Message)
    assert event.payload == b"y"


def test_the_descriptor_is_ready_while_there_is_an_event(bare: Bare) -> None:
    """It stays the same while daemons come and go."""
    with connect(str(bare.address)) as bus, select.epoll() as epoll:

        def received(count: int) -> list[Event | bytes]:
            """The next events of a program that calls only when it is told to, and never waits inside."""
            events: list[Event] = []
            while len(events) < count:
                assert epoll.poll(PATIENCE)
                assert select.select([bus], [], [], 0)[0]
                if (event := bus.receive(0)) is not None:
                    events.append(event)
            return [event.payload if isinstance(event, Message) else event for event in events]

        fd = bus.fileno()
        epoll.register(fd, select.EPOLLIN)
        bare.answers[b"SUB a"] = [frame(b"a", b"before the answer")]
        bus.subscribe("a")
        bus.sync()
        assert received(1) == [b"before the answer"]
        bare.answers.clear()
        for _ in range(3):
            assert not epoll.poll(0)
            bare.send(batch(b"1", b"2", b"3"), frame(b"a", b"4"), batch(b"5", b"6"), batch(b"7", b"8"))
            assert received(7) == [b"%d" % number for number in range(1, 8)]
            bare.restart()
            last, back = received(2)
            assert (last, type(back)) == (b"8", Reconnected)
        assert not epoll.poll(0)
        assert bus.fileno() == fd
    assert bus.fileno() == -1


def test_the_descriptor_is_quiet_while_the_daemon_is_away(bare: Bare) -> None:
    with connect(str(bare.address)) as bus, select.epoll() as epoll:
        epoll.register(bus, select.EPOLLIN)
        bare.stop()
        calls = 0
        deadline = time.monotonic() + 0.3
        while epoll.poll(max(0.0, deadline - time.monotonic())):
            assert bus.receive(0) is None
            calls += 1
        assert calls < 10
        bare.start()
        while (event := bus.receive(0)) is None:
            assert epoll.poll(PATIENCE)
        assert isinstance(event, Reconnected)


def test_the_descriptor_of_an_ended_connection_is_ready(bare: Bare) -> None:
    with connect(str(bare.address), reconnect=False) as bus:
        assert bus.fileno() >= 0
        bare.stop()
        assert select.select([bus], [], [], PATIENCE)[0]
        with pytest.raises(BusError):
            bus.receive(0)
        assert select.select([bus], [], [], 0)[0]


def test_an_absence_lasts_from_the_last_look(bare: Bare) -> None:
    with connect(str(bare.address)) as bus:
        before = time.monotonic()
        bus.sync()
        time.sleep(0.2)
        bare.restart()
        event = bus.receive(PATIENCE)
        assert isinstance(event, Reconnected)
        assert 0.2 <= event.seconds <= time.monotonic() - before


def test_a_closed_connection_says_so(hub: Hub, do: Do) -> None:
    before = descriptors()
    with connect(hub.path) as connection:
        connection.sync(PATIENCE)
    connection.close()  # to do so twice is no fault
    for call in (lambda: connection.publish("a"), connection.sync, lambda: connection.receive(0), connection.receive):
        with refused("connection_lost"):
            call()
    wait(lambda: not hub.bus.clients, "the bus to notice")
    do(lambda: None)  # the round in which it noticed is over
    assert descriptors() == before
