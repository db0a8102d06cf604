"""Subscriptions that are objects, callbacks, and what is left for the connection; with both clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import pytest

import bccnd
import bccnd.aio
from bccnd.client.event_queues import MAX_EVENTS, MAX_INBOX
from bccnd.client.transport import MOST
from bccnd.core.wire import frames
from tests.client.sessions import BATCH, META, Bare, batch, frame, without_syncs
from tests.endpoint.segments import in_threads
from tests.refusals import refused
from tests.support import PATIENCE


def payloads(source: Any, count: int) -> list[bytes]:
    """The payloads of the next messages of a connection or subscription of either client."""
    return [message.payload for message in islice(iter(source), count)]


def send(bare: Bare, *messages: str) -> None:
    """Send messages, each given as its channel and payload."""
    for one in messages:
        chan, payload = one.split()
        bare.send(frame(chan.encode(), payload.encode()))


def test_a_gap_tells_of_what_no_program_received(bare: Bare, bus: Any) -> None:
    with bus.subscribe("a") as idle, bus.subscribe("end") as end:
        with in_threads(lambda: bare.send(*[batch(*[b"x"] * 100)] * 60, frames.gap(7), frame(b"end", b"1"))):
            assert payloads(end, 1) == [b"1"]
        kept = 0
        while isinstance(event := idle.receive(), bccnd.Message):
            kept += 1
        assert MAX_EVENTS <= kept < MAX_EVENTS + 100 * MOST
        assert event == bccnd.Gap(6000 - kept + 7)
        send(bare, "a 2")
        assert (payloads(idle, 1), idle.lost) == ([b"2"], 6000 - kept + 7)


@pytest.mark.parametrize("listens", [False, True])
def test_what_waits_for_a_program_is_bounded(bare: Bare, listens: bool) -> None:
    with bccnd.connect(str(bare.address)) as bus:
        if listens:
            bus.listen("a", lambda _message: None)
        bare.answers[frames.request(frames.WHOAMI)] = [
            *[batch(*[b"x"] * 1000)] * 20,
            frames.control(frames.WHOAMI, b"me"),
        ]
        for _ in range(3):
            assert bus.identity() == "me"
        got = 0
        while bus.lost == 0:
            got += bus.dispatch() if listens else isinstance(bus.receive(0), bccnd.Message)
        assert bus.lost + got == 60_000
        assert got < MAX_INBOX + 1000 * MOST


# -- time


@pytest.fixture
def flooded(bare: Bare) -> Iterator[bccnd.Connection]:
    """A blocking connection to which messages come faster than it reads them, on channel a."""
    with bccnd.connect(str(bare.address)) as bus:
        bus.sync()
        over, much = threading.Event(), batch(*[b""] * 2000)

        def flood() -> None:
            with suppress(OSError):
                while not over.is_set():
                    bare.send(much)

        with in_threads(flood):
            yield bus
            over.set()
            bus.close()


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_waiting_ends_in_time_while_other_messages_come(flooded: bccnd.Connection, timeout: float) -> None:
    flooded.listen("b", lambda _message: None)
    mine = flooded.subscribe("mine")
    flooded.subscribe("a").receive(0)
    assert mine.receive(timeout) is None  # each of these would never end
    assert flooded.dispatch(timeout) == 0
    for ask in (flooded.request, flooded.ask):
        with pytest.raises(bccnd.RequestTimeout):
            ask("!/nobody", timeout=timeout)


# -- callbacks


def test_listening_that_fails_registers_nothing(bare: Bare) -> None:
    got: list[bytes] = []

    def callback(message: bccnd.Message) -> None:
        got.append(message.payload)

    with bccnd.connect(str(bare.address)) as bus:
        with refused("too_long"):
            bus.listen("x" * 500_000, callback)
        bus.sync()
        bare.stop()
        bus.listen("a", callback)  # this does not fail any more
        bare.start()
        while not bus.connected:
            bus.dispatch(0.1)
        send(bare, "a 1")
        while not got:
            bus.dispatch(PATIENCE)
        assert bus.dispatch() == 0
        assert got == [b"1"]
        assert not bus.unlisten("x" * 500_000, callback)


def test_callbacks_are_all_called_though_one_raises(bare: Bare) -> None:
    got: list[bytes] = []

    def fails(_message: bccnd.Message) -> None:
        raise ZeroDivisionError

    with bccnd.connect(str(bare.address)) as bus:
        bus.listen("a", fails)
        bus.listen("a", lambda message: got.append(message.payload))
        bus.sync()
        send(bare, "a 1", "a 2")
        for count in (1, 2):
            with pytest.raises(ZeroDivisionError):
                bus.dispatch(PATIENCE)
            assert len(got) == count
        bus.listen("a", fails)
        send(bare, "a 3")
        with pytest.raises(ExceptionGroup) as caught:
            bus.dispatch(PATIENCE)
        assert [type(one) for one in caught.value.exceptions] == [ZeroDivisionError] * 2
    assert got == [b"1", b"2", b"3"]


class _Callable:
    async def __call__(self, _message: object) -> None:
        raise AssertionError

    async def method(self, _message: object) -> None:
        raise AssertionError


def test_the_blocking_client_refuses_coroutines(bare: Bare) -> None:
    one = _Callable()
    with bccnd.connect(str(bare.address)) as bus:
        for callback in (one, one.method, partial(one.method), _Callable.method):
            for call in (bus.listen, bus.respond):
                with pytest.raises(TypeError, match="async"):
                    call("a", callback)  # type: ignore[arg-type]
        bus.sync()
        assert without_syncs(bare.received[0]) == [META, BATCH]
        bus.listen("a", lambda message: one.method(message))  # type: ignore[arg-type]
        bus.sync()
        send(bare, "a 1")
        with pytest.raises(TypeError, match="returned"):
            bus.dispatch(PATIENCE)


def test_dispatch_calls_the_callbacks_of_what_has_come(bare: Bare) -> None:
    got: list[bytes] = []
    with bccnd.connect(str(bare.address)) as bus:

        def on_door(message: bccnd.Message) -> None:
            got.append(message.payload)

        bus.listen("door/", on_door)
        bus.subscribe("c")
        bus.sync()
        assert bus.dispatch() == 0
        send(bare, "door/1 1", "c 2", "! 3", "door/2 4")
        assert bus.dispatch(None) >= 1
        while len(got) < 3:
            bus.dispatch(PATIENCE)
        assert got == [b"1", b"3", b"4"]
        assert payloads(bus, 1) == [b"2"]
        assert (bus.unlisten("door/", on_door), bus.unlisten("door/", on_door)) == (True, False)
        bare.send(frames.error("not_permitted", b"b"))
        with refused("not_permitted"):
            bus.dispatch(PATIENCE)
        send(bare, "door/1 5")
        assert payloads(bus, 1) == [b"5"]
    bare.heard(b"UNSUB door/")
    assert without_syncs(bare.received[0])[2:] == [b"SUB door/", b"SUB c", b"UNSUB door/"]


def test_a_subscription_has_room_for_all_messages_of_a_packet(bare: Bare, bus: Any) -> None:
    count = 1500  # of one packet, above what a subscription keeps while another one is read
    bus.subscribe("other")
    found = bus.subscribe("a")
    bus.sync()
    with found:
        bare.send(batch(*[b""] * count))
        assert payloads(found, count) == [b""] * count
        assert found.dropped == 0
