"""A gateway's connection to the bus: what each daemon is sent, and what waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bccnd.core.wire import frames
from bccnd.gateways import frame_connection as module
from bccnd.gateways.frame_connection import FrameConnection
from tests.client.sessions import BATCH, Bare, batch, until, without_syncs
from tests.support import PATIENCE


class Calls:
    """A line, and the calls that it makes."""

    def __init__(self, path: str) -> None:
        self.frames: list[bytes] = []
        self.ups = self.empty = 0
        self.line = FrameConnection(
            path,
            100,
            on_frames=self.frames.extend,
            on_emptied=self._on_emptied,
            on_up=self._on_up,
        )

    def _on_emptied(self) -> None:
        self.empty += 1

    def _on_up(self) -> None:
        self.ups += 1


def run(bare: Bare, scenario: Callable[[Calls], Awaitable[None]]) -> None:
    async def whole() -> None:
        calls = Calls(str(bare.address))
        try:
            async with asyncio.timeout(PATIENCE):
                await scenario(calls)
        finally:
            calls.line.close()

    asyncio.run(whole(), debug=True)


def report(text: bytes) -> bytes:
    return frames.control(frames.GATEWAY, text)


def test_each_daemon_is_sent_what_is_held_and_then_what_waits(bare: Bare) -> None:
    async def scenario(calls: Calls) -> None:
        line = calls.line
        for pattern in (b"a", b"b"):
            line.subscribe(pattern)
        line.unsubscribe(b"b")
        assert line.send(b"MSG x\0early", 1.0)
        line.start()
        await until(lambda: line.up)
        line.send_report(b"one")
        bare.heard(report(b"one"))
        bare.send(batch(b"1", b"2"), frames.gap(3), batch(b"4")[12:])
        await until(lambda: len(calls.frames) >= 4 and calls.empty)
        await asyncio.to_thread(bare.stop)
        await until(lambda: not line.up)
        lost = line.session.why
        line.send_report(b"of no daemon")
        for number in range(4):
            assert line.send(b"MSG x\0%d" % number, float(number))
        assert line.forget(2.0) == 2
        await until(lambda: line.session.why != lost)  # it cannot be reached
        bare.start()
        await until(lambda: line.up and not line.waiting)
        line.send(b"MSG x\0late", 9.0)
        bare.heard(b"MSG x\0late")
        assert calls.ups == 2

    run(bare, scenario)
    held = [BATCH, b"SUB a"]
    assert [without_syncs(one) for one in bare.received] == [
        [*held, b"MSG x\0early", report(b"one")],
        [*held, b"MSG x\x002", b"MSG x\x003", b"MSG x\0late"],
    ]


def test_what_is_refused_is_asked_for_again_and_nothing_else_is(bare: Bare) -> None:
    async def scenario(calls: Calls) -> None:
        line = calls.line
        line.start()
        await until(lambda: line.up)
        for pattern in (b"granted", b"refused", b"left"):
            line.subscribe(pattern)
        for pattern in (b"refused", b"left"):
            line.refused(pattern)
        line.unsubscribe(b"left")
        line.again()
        line.send(b"MSG x\0", 0.0)
        bare.heard(b"MSG x\0")

    run(bare, scenario)
    asked = [frames.subscribe(one) for one in (b"granted", b"refused", b"left")]
    assert without_syncs(bare.received[0]) == [BATCH, *asked, b"UNSUB left", b"SUB refused", b"MSG x\0"]


def test_messages_for_a_daemon_that_refuses_wait_in_limits(bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROOM_BYTES", 100)
    bare.refuses = frames.error("too_many_clients", b"")

    async def scenario(calls: Calls) -> None:
        line = calls.line
        line.start()
        for _ in range(11):
            assert line.send(b"MSG x\x001234", 0.0)
        assert not line.send(b"MSG x\x001234", 0.0)
        await until(lambda: line.session.why)
        bare.refuses = None
        await until(lambda: line.up and not line.waiting)
        assert line.send(b"MSG x\x001234", 0.0)
        bare.heard(b"MSG x\x001234")

    run(bare, scenario)
