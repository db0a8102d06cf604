"""The client for asyncio: many tasks, cancellation, backpressure; what it shares with the other: test_reconnecting."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence

import pytest

import bccnd
import bccnd.aio
from bccnd.aio import AsyncConnection
from bccnd.client.event_queues import MAX_EVENTS, Event, Reconnected, Refusal
from bccnd.client.message import Message
from bccnd.client.transport import MOST, dial
from bccnd.core.wire import frames
from bccnd.errors import BusError
from tests.client.sessions import Bare, batch, frame, until, without_syncs
from tests.support import PATIENCE, ROOT, Hub, turning, wait

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

Scene = Callable[[AsyncConnection], Awaitable[None]]


def play(path: str | bytes, scene: Scene, *, reconnect: bool = True) -> None:
    """Play a scene with a connection; afterwards no task is left, and nothing has gone wrong behind the scenes."""
    faults: list[object] = []

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        async with asyncio.timeout(PATIENCE), bccnd.aio.connect(str(path), reconnect=reconnect) as bus:
            await scene(bus)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(whole(), debug=True)
    gc.collect()
    assert faults == []


def played(scene: Callable[[AsyncConnection, Bare], Awaitable[None]]) -> Callable[[Bare], None]:
    """A test that is a scene with a connection to the scripted daemon."""

    def test(bare: Bare) -> None:
        play(bare.address, lambda bus: scene(bus, bare))

    return test


def payload(event: Event | None) -> bytes:
    assert isinstance(event, Message)
    return event.payload


# -- several tasks


@played
async def test_each_event_goes_to_one_of_those_who_receive(bus: AsyncConnection, bare: Bare) -> None:
    got: list[bytes] = []

    async def one() -> None:
        while (event := await bus.receive()) is not None and payload(event) != b"end":
            got.append(payload(event))

    tasks = [asyncio.create_task(one()) for _ in range(5)]
    await bus.sync()
    numbers = [b"%d" % number for number in range(500)]
    packets = [
        *(frame(b"a", number) for number in numbers[:250]),
        *(batch(*numbers[n : n + 9]) for n in range(250, 500, 9)),
    ]
    await asyncio.gather(*tasks, asyncio.to_thread(bare.send, *packets, batch(*[b"end"] * 5)))
    assert sorted(got, key=int) == numbers


def test_who_publishes_without_end_lets_others_have_their_turn(hub: Hub) -> None:
    async def scene(bus: AsyncConnection) -> None:
        async def publish() -> None:
            while True:
                await bus.publish("a")

        flood = asyncio.create_task(publish())
        for _ in range(20):
            await asyncio.sleep(0)
        await bus.subscribe("b")
        flood.cancel()
        await asyncio.wait([flood])

    with turning(hub.loop):
        play(hub.path, scene)


@played
async def test_coroutines_are_awaited_one_message_after_the_other(bus: AsyncConnection, bare: Bare) -> None:
    got: list[bytes] = []
    done = asyncio.Event()

    async def slow(message: Message) -> None:
        await bus.sync()  # calls work meanwhile
        got.append(b"slow " + message.payload)
        if message.payload == b"69":
            done.set()

    def quick(message: Message) -> None:
        got.append(b"quick " + message.payload)

    await bus.listen("a", slow)
    await bus.listen("a", quick)
    await bus.sync()
    await asyncio.to_thread(bare.send, *(frame(b"a", b"%d" % number) for number in range(70)))
    await done.wait()
    assert got == [word % number for number in range(70) for word in (b"quick %d", b"slow %d")]
    assert await bus.unlisten("a", quick)


@played
async def test_callbacks_are_called_though_the_rest_waits(bus: AsyncConnection, bare: Bare) -> None:
    called = asyncio.Event()
    await bus.listen("b", lambda _message: called.set())
    await bus.sync()
    await asyncio.to_thread(bare.send, *[batch(*[b"x"] * 100)] * (MAX_EVENTS // 50), frame(b"b"))
    await called.wait()


def test_callbacks_that_raise_cost_the_others_nothing(bare: Bare) -> None:
    faults: list[str] = []
    got: list[bytes] = []

    async def main() -> None:
        def fails(message: Message) -> None:
            raise ValueError(message.text)

        async def fails_later(message: Message) -> None:
            raise KeyError(message.text)

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(type(context["exception"]).__name__))
        async with bccnd.aio.connect(str(bare.address)) as bus:
            await bus.listen("a", fails)
            await bus.listen("a", fails_later)
            await bus.listen("a", lambda message: got.append(message.payload))
            await bus.sync()
            bare.send(frame(b"a", b"1"), frame(b"a", b"2"))
            await until(lambda: len(faults) == 4)

    asyncio.run(main())
    assert got == [b"1", b"2"]
    assert faults == ["ValueError", "KeyError"] * 2


@played
async def test_closing_cancels_a_callback_that_is_awaited(bus: AsyncConnection, bare: Bare) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def waits(_message: Message) -> None:
        began.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended.set()

    await bus.listen("a", waits)
    await bus.sync()
    bare.send(frame(b"a", b"1"), frame(b"a", b"2"))
    await began.wait()
    bus.close()
    await ended.wait()


@played
async def test_tasks_iterate_over_their_subscriptions(bus: AsyncConnection, bare: Bare) -> None:
    async def collect(subscription: bccnd.aio.AsyncSubscription) -> list[bytes]:
        return [message.payload async for message in subscription]

    some = [bus.subscribe("a"), await bus.subscribe("b"), await bus.subscribe("b")]
    tasks = [asyncio.create_task(collect(one)) for one in some]
    await bus.sync()
    bare.send(*(frame(*one) for one in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"))))
    assert payload(await bus.receive()) == b"4"
    for one in some:
        one.close()
    assert await asyncio.gather(*tasks) == [[b"1", b"3"], [b"2"], [b"2"]]
    await bus.sync()
    assert without_syncs(bare.received[0])[-3:] == [b"UNSUB a", b"UNSUB b", b"UNSUB b"]


# -- cancellation


@played
async def test_a_cancelled_receive_takes_no_event_with_it(bus: AsyncConnection, bare: Bare) -> None:
    await bus.sync()
    got: list[bytes] = []
    for number in range(100):
        tasks = [asyncio.create_task(bus.receive()) for _ in range(3)]
        await asyncio.sleep(0)
        bare.send(frame(b"a", b"%d" % number))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        for task in tasks[:2]:
            task.cancel()
        await asyncio.wait(tasks[:2])
        heard = [task for task in tasks[:2] if not task.cancelled()]
        if heard:
            tasks[2].cancel()
            await asyncio.wait(tasks[2:])
        else:
            await tasks[2]  # it has to be told of what the others were woken for
            heard = tasks[2:]
        got += [payload(task.result()) for task in heard]
    assert got == [b"%d" % number for number in range(100)]


@played
async def test_a_cancelled_question_leaves_no_answer_to_others(bus: AsyncConnection, bare: Bare) -> None:
    bare.answers[frames.request(frames.STATS, b"daemon")] = [frames.control(frames.STATS, b"daemon")]
    task = asyncio.create_task(bus.ask(frames.STATS, b"clients"))
    await asyncio.to_thread(bare.heard, b"CMSG !/bccn/stats\0clients")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bare.send(frames.control(frames.STATS, b"clients"))
    assert await bus.ask(frames.STATS, b"daemon") == b"daemon"


@played
async def test_what_is_cancelled_before_it_was_sent_is_never_sent(bus: AsyncConnection, bare: Bare) -> None:
    await bus.subscribe("a")
    await bus.sync()
    bare.stop()
    tasks = [
        asyncio.create_task(bus.publish("a", "never")),
        asyncio.create_task(bus.echo(False)),
        asyncio.create_task(bus.publish("a", "now")),
    ]
    await asyncio.sleep(0.01)
    for task in tasks[:2]:
        task.cancel()
    await asyncio.wait(tasks[:2])
    bare.start()
    await tasks[2]
    await bus.sync()
    output = [packet for packet in bare.received[1] if not packet.startswith(b"CMSG")]
    assert output == [b"SUB a", b"MSG a\0now"]


# -- a program that does not keep up


async def fill(bare: Bare, packets: Sequence[bytes]) -> int:
    """Send packets until the client leaves them in its socket, which keeps few; return their number."""
    bare.last.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(packets[0]))
    sent = rounds = 0
    while sent < len(packets) and rounds < 20:
        try:
            bare.last.send(packets[sent], socket.MSG_DONTWAIT)
        except BlockingIOError:
            rounds += 1
            await asyncio.sleep(0)
        else:
            sent, rounds = sent + 1, 0
    return sent


@pytest.mark.parametrize("subscribes", [False, True])
@pytest.mark.parametrize("size", [1, 300])
def test_a_program_that_does_not_receive_loses_nothing(bare: Bare, size: int, subscribes: bool) -> None:
    """Nothing is read for it beyond the packets that were read at once, and a loss of the daemon is behind them."""
    payloads = [b"%d" % number for number in range(40 * max(size, MAX_EVENTS // 10))]
    batches = [payloads[first : first + size] for first in range(0, len(payloads), size)]
    packets = [batch(*some) if size > 1 else frame(b"a", some[0]) for some in batches]

    async def scene(bus: AsyncConnection) -> None:
        source = await bus.subscribe("a") if subscribes else bus
        await bus.sync()
        if subscribes:
            assert await source.receive(0) is None
        sent = await fill(bare, packets)
        assert MAX_EVENTS <= sent * size <= MAX_EVENTS + (MOST + 20) * size
        if not subscribes:
            assert await bus.sync() == []  # an answer comes however much waits
        rest = asyncio.create_task(asyncio.to_thread(bare.send, *packets[sent:]))
        for expected in payloads[:-1]:
            assert payload(await source.receive(PATIENCE)) == expected
        await rest
        await asyncio.to_thread(bare.restart)
        assert payload(await source.receive(PATIENCE)) == payloads[-1]
        assert isinstance(await source.receive(PATIENCE), Reconnected)

    play(bare.address, scene)


def test_a_client_that_is_turned_away_at_once_was_not_away(bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gone.send(frames.error("too_many_clients", b""))
    gone.close()
    sock.setblocking(False)
    sockets = iter((sock,))
    monkeypatch.setattr("bccnd.client.transport.dial", lambda address: next(sockets, None) or dial(address))

    async def scene(bus: AsyncConnection) -> None:
        assert isinstance(await bus.receive(PATIENCE), Refusal)
        event = await bus.receive(PATIENCE)
        assert isinstance(event, Reconnected)
        assert 0 <= event.seconds < PATIENCE

    play(bare.address, scene)


# -- the end


async def lost(*calls: Awaitable[object]) -> None:
    """Each of these calls is told that the connection is lost."""
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, BusError)
        assert result.reason == "connection_lost"


@pytest.mark.parametrize("how", ["closed", "closed while away", "lost"])
def test_the_end_is_told_to_every_call_that_waits(bare: Bare, how: str) -> None:
    async def scene(bus: AsyncConnection) -> None:
        await bus.sync()
        if how == "closed while away":
            await asyncio.to_thread(bare.stop)
            await until(lambda: bus.fileno() == -1)
        calls: list[Awaitable[object]] = [bus.receive(), bus.receive(PATIENCE), bus.ask(b"x"), anext(bus)]
        if how == "closed while away":
            calls.append(bus.publish("a"))
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        if how == "lost":
            await asyncio.to_thread(bare.stop)
        else:
            bus.close()
        await lost(*tasks, bus.publish("a"), bus.receive(0))
        bus.close()  # to do so twice is no fault
        assert bus.fileno() == -1

    play(bare.address, scene, reconnect=how != "lost")


def test_a_program_that_forgets_to_close_is_not_held_up(bare: Bare) -> None:
    code = (
        "import asyncio, bccnd.aio\n"
        "async def main():\n"
        f"    entered = bccnd.aio.connect({str(bare.address)!r})\n"
        "    bus = await entered.__aenter__()\n"
        "    await bus.publish('a', 'x')\n"
        "    print((await bus.sync()))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == b"[]\n"
    wait(lambda: b"MSG a\0x" in bare.received[0])
