"""A connection counts each message once, and knows how old at most what it reads is."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.gateways.nng import connection as module
from bccnd.gateways.nng.connection import InputAge, LinkConnection
from bccnd.gateways.status import GatewayStatus
from bccnd.snapshot import GatewayPeerState
from tests.gateways.peers import HELLO


class Owner:
    def __init__(self) -> None:
        self.status = GatewayStatus("nng")
        self.messages: list[bytes] = []
        self.ended: list[str] = []

    def on_open(self, link: LinkConnection) -> None: ...

    def on_messages(self, link: LinkConnection, messages: list[bytes], age: float) -> None:
        self.messages += messages

    def on_closed(self, link: LinkConnection, reason: str, detail: str) -> None:
        self.ended.append(reason)


@given(st.lists(st.integers(0, 12_000), max_size=200), st.integers(16, 64), st.booleans())
def test_each_message_arrives_or_is_counted_as_dropped(sizes: list[int], room: int, is_cut: bool) -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        owner, report = Owner(), GatewayPeerState("127.0.0.1:0")
        link = LinkConnection(ours, owner, report, accepted=True, room=room, horizon=2.0)
        theirs.send(HELLO)
        while not link.open:
            await asyncio.sleep(0)
        for size in sizes:
            link.put(bytes(size), 0.0)
        link.flush()
        got = bytearray()

        def receive() -> None:
            with suppress(BlockingIOError):
                got.extend(theirs.recv(1 << 20))

        while not is_cut and link.queue:
            receive()
            await asyncio.sleep(0)
        sent = report.sent
        assert sent + len(link.queue) + report.dropped == len(sizes)
        assert owner.status.dropped.get("queue_full", 0) == report.dropped
        assert (report.queued == 0) == (not sum(len(one) for _, one in link.queue))
        link.close()
        for _ in range(len(sizes) + 100):
            receive()
        assert owner.status.sent == sent
        theirs.close()
        count, at = 0, len(HELLO)
        while at + 9 <= len(got) and at + 9 + (size := int.from_bytes(got[at + 1 : at + 9], "big")) <= len(got):
            assert got[at] == 1
            count, at = count + 1, at + 9 + size
        assert count == sent

    asyncio.run(run())


@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(1, 400), max_size=30))
def test_messages_come_out_as_they_went_in_however_they_were_cut(messages: list[bytes], cuts: list[int]) -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        owner = Owner()
        link = LinkConnection(ours, owner, GatewayPeerState("127.0.0.1:0"), accepted=True, room=16, horizon=2.0)
        data = HELLO + b"".join(b"\1%b%b" % (len(one).to_bytes(8, "big"), one) for one in messages)
        for size in [*cuts, len(data)]:
            theirs.send(data[:size])
            data = data[size:]
            for _ in range(3):
                link.read()
        assert owner.messages == messages
        assert owner.status.dropped == {}
        theirs.close()
        link.read()
        assert owner.ended == [""]

    asyncio.run(run())


# -- how old what is read may be


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [0.0]
    monkeypatch.setattr(module, "now", lambda: time[0])
    return time


def test_what_is_found_after_a_pause_may_be_as_old_as_the_pause(clock: list[float]) -> None:
    age = InputAge(0.5, room=100)
    age.mark_empty(10.0)
    for moment, expected in ((10.4, 0.0), (13.0, 3.0)):
        clock[0] = moment
        assert age.age() == expected
    age.mark_empty(13.0)
    clock[0] = 13.1
    assert age.age() == 0.0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=40))
def test_nothing_is_older_than_its_age(
    steps: list[tuple[int, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        time = [0.0]
        patch.setattr(module, "now", lambda: time[0])
        room = 20
        age = InputAge(0.0, room)
        waiting: deque[float] = deque()
        for moment, (came, taken) in enumerate(steps, start=1):
            time[0] = float(moment)
            waiting.extend([moment - 0.5] * min(came, room - len(waiting)))
            count = min(taken, len(waiting))
            for _ in range(count):
                assert moment - waiting.popleft() <= age.age()
            if waiting:
                age.add(count, float(moment))
            else:
                age.mark_empty(float(moment))


def test_an_input_that_is_never_empty_has_a_bounded_age(clock: list[float]) -> None:
    age = InputAge(0.5, room=100)
    for second in range(1, 50):
        clock[0] = float(second)
        age.add(60, clock[0])
    assert 0.5 < age.age() <= 5.0
