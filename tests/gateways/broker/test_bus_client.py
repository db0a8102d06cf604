"""The broker's connection to the bus: what each daemon is sent, and what waits for one that goes away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bccnd.client.message import Message
from bccnd.gateways.broker.bus_client import MAX_WAITING, BusClient
from tests.client.sessions import Bare, frame, until
from tests.support import PATIENCE


def client(path: str, on_messages: Callable[[list[Message]], None] = lambda _: None, **more: Any) -> BusClient:
    return BusClient(
        path, on_messages, lambda _: None, lambda _: None, more.get("on_lost", lambda *_: None), local=True
    )


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, PATIENCE))


def test_publications_for_a_daemon_that_dies_are_counted(bare: Bare) -> None:
    lost = Counter[str]()

    async def scenario() -> None:
        link = client(str(bare.address), on_lost=lambda reason, count: lost.update({reason: count}))
        link.start()
        await until(lambda: link.up)
        bare.reads.clear()
        while not (reason := link.publish(b"a", b"x" * 100)):
            pass
        assert reason == "bus_full"
        link.subscribe(b"b")  # that is sent again to the next daemon, and not lost
        assert not lost
        bare.reads.set()
        bare.stop()
        await until(lambda: lost)
        link.close()

    play(scenario())
    assert lost == {"not_connected": MAX_WAITING}


@pytest.mark.parametrize("stuck", [False, True])
def test_the_next_daemon_is_sent_each_pattern_once(bare: Bare, stuck: bool) -> None:
    faults: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))

        def on_messages(_messages: list[Message]) -> None:
            if stuck:
                link.subscribe(b"c")
            link.unsubscribe(b"b")

        link = client(str(bare.address), on_messages)
        for pattern in (b"a", b"b"):
            link.subscribe(pattern)
        link.start()
        await until(lambda: link.up)
        bare.send(frame(b"a"))
        bare.restart()
        await until(lambda: len(bare.received) == 2 and link.up)
        link.close()

    play(scenario())
    held = [b"SUB a", b"SUB c"] if stuck else [b"SUB a"]
    assert [packet for packet in bare.received[1] if packet.startswith(b"SUB")] == held
    assert (len(bare.received), faults) == (2, [])


def test_what_strangers_change_while_nothing_is_taken_is_bounded(bare: Bare) -> None:
    async def scenario() -> None:
        link = client(str(bare.address))
        link.start()
        await until(lambda: link.up)
        bare.reads.clear()
        for number in range(20_000):
            link.subscribe(b"%d" % number)
            link.unsubscribe(b"%d" % number)
        link.subscribe(b"last")
        bare.reads.set()
        await asyncio.to_thread(bare.heard, b"SUB last")
        link.close()

    play(scenario())
    received = bare.received[0]
    asked, ended = ({one.partition(b" ")[2] for one in received if one.startswith(verb)} for verb in (b"SUB", b"UNSUB"))
    assert asked - ended == {b"last"}
    assert len(received) < 10_000
