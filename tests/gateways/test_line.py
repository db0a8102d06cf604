"""A gateway's transport to the bus: what each daemon is told, and what waits for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from bccnd.core import frames
from bccnd.gateways import line as module
from bccnd.gateways.line import Line
from tests.support import PATIENCE

#: bytes of a message of which a socket takes only some
LARGE = 50_000


class Daemons:
    """The other ends of a line, one for each call; ``dead`` ones are closed at once."""

    def __init__(self, dead: bool) -> None:
        self.calls: list[socket.socket] = []
        self.reasons: list[str] = []
        self._dead = dead
        self.line = Line(
            "bus",
            100,
            on_frames=lambda _frames: None,
            on_emptied=lambda: None,
            on_up=lambda: None,
            on_away=self.reasons.append,
            call=self._call,
        )
        self.line.start()

    def _call(self, _address: str | bytes) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for one in (ours, theirs):
            one.setblocking(False)
        self.calls.append(theirs)
        if self._dead:
            theirs.close()
        return ours

    async def heard(self, count: int) -> list[bytes]:
        """So many packets, sent to the daemon called last."""
        loop = asyncio.get_running_loop()
        return [await loop.sock_recv(self.calls[-1], 1 << 20) for _ in range(count)]

    async def called(self, times: int) -> None:
        while len(self.calls) < times:
            await asyncio.sleep(0.001)


Scenario = Callable[[Daemons], Awaitable[None]]
Run = Callable[..., None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(module, "_LONGEST", 0.001)
    monkeypatch.setattr(module, "_SHORTEST", 0.001)

    def run(scenario: Scenario, *, dead: bool = False) -> None:
        async def whole() -> None:
            daemons = Daemons(dead)
            try:
                await asyncio.wait_for(scenario(daemons), PATIENCE)
            finally:
                daemons.line.close()
                for one in daemons.calls:
                    one.close()

        asyncio.run(whole())

    return run


GREETING = [frames.request(frames.BATCH_ON), frames.subscribe(b"a"), frames.control(frames.GATEWAY, b"two")]


@pytest.mark.parametrize("full", [False, True])
def test_each_daemon_is_told_once_what_is_held_and_the_latest_report(run: Run, full: bool) -> None:
    async def scenario(daemons: Daemons) -> None:
        line = daemons.line
        while full and not line.waiting:
            line.send(bytes(LARGE), 0.0)
        if not full:
            daemons.calls[0].close()
        # With a socket that is full, or a connection that has ended and is found to have now.
        for pattern in (b"a", b"b"):
            line.subscribe(pattern)
        line.unsubscribe(b"b")
        for text in (b"one", b"two"):
            line.tell(frames.control(frames.GATEWAY, text))
        if full:
            daemons.calls[0].close()
        line.send(b"message", 0.0)
        await daemons.called(2)
        line.tell(frames.control(frames.GATEWAY, b"two"))
        waited = [bytes(LARGE)] * full
        told = await daemons.heard(4 + full)
        assert (sorted(told), told[0]) == (sorted([*GREETING, *waited, b"message"]), GREETING[0])

    run(scenario)


def test_what_is_refused_is_asked_for_again_and_nothing_else_is(run: Run) -> None:
    async def scenario(daemons: Daemons) -> None:
        line = daemons.line
        for pattern in (b"granted", b"refused", b"left"):
            line.subscribe(pattern)
        for pattern in (b"refused", b"left"):
            line.refused(pattern)
        line.unsubscribe(b"left")  # which the daemon does not hold
        line.again()
        line.send(b"message", 0.0)
        asked = [frames.subscribe(one) for one in (b"granted", b"refused", b"left", b"refused")]
        assert await daemons.heard(6) == [GREETING[0], *asked, b"message"]

    run(scenario)


def test_daemons_that_go_at_once_take_up_no_room(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROOM_BYTES", 100)

    async def scenario(daemons: Daemons) -> None:
        await daemons.called(20)
        assert daemons.line.send(b"message", 0.0)

    run(scenario, dead=True)
