"""The asyncio client: what programs call, on a transport that is driven by callbacks of the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from itertools import count, islice, starmap
from typing import Any, Final, TypeVar

from bccnd.client.calls import HARD, ORDERS, SOFT, SWITCH, Steps
from bccnd.client.client_base import ClientBase, SubscriptionBase
from bccnd.client.event_queues import MAX_EVENTS, AsyncCallback, Event, EventQueue, Refusal, raise_refused
from bccnd.client.message import Data, Message, directed, publication
from bccnd.client.request_reply import AsyncResponder, Replies
from bccnd.client.session import PATIENCE, Session
from bccnd.client.transport import Transport, usual_path
from bccnd.core.wire import frames

__all__ = ["AsyncConnection", "AsyncSubscription", "connect"]

#: messages published, or passed to callbacks, before others have their turn
_TURN: Final = 64

R = TypeVar("R")


@asynccontextmanager
async def connect(
    path: str | None = None,
    *,
    reconnect: bool = True,
    batch: bool = True,
    dialect: str | None = None,
    wait: float | None = 0.0,
    away: bool = False,
) -> AsyncIterator[AsyncConnection]:
    """Connect to the daemon, as `bccnd.connect` does, for programs on asyncio.

        import asyncio
        import bccnd.aio

        async def main():
            async with bccnd.aio.connect() as bus:
                await bus.publish("cardsys/hello", "hello, world")
                async for message in bus.subscribe("cardsys/", "door/*/opened"):
                    print(message.src, message.chan, message.text)

        asyncio.run(main())

    The options are those of `bccnd.connect`. A connection that outlives a function can be entered by
    `contextlib.AsyncExitStack`.

    Several tasks may use a connection at once. If several receive from the same connection or subscription, each event
    goes to one of them. A cancelled call loses no event, and the connection stays usable.
    """
    session = Session(path or usual_path(), batch=batch, reconnect=reconnect, dialect=dialect)
    session.router.shows_away = away
    bus = AsyncConnection(session)
    try:
        for pause in bus._attempts(wait):
            await asyncio.sleep(pause)
        yield bus
    finally:
        bus.close()


class _Waiter(asyncio.Future[None]):
    """What a task waits for. In a callback of the loop it can be woken at once, which saves the loop one round for each
    message."""

    _wakes: tuple[Callable[[Any], object], Context] | None = None

    def add_done_callback(self, callback: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        self._wakes = callback, context or copy_context()
        super().add_done_callback(callback, context=context)

    def wake(self) -> bool:
        """Let the task that waits go on, before this returns; False if none does."""
        if self._wakes is None:
            return False
        callback, context = self._wakes
        self.remove_done_callback(callback)
        self.set_result(None)
        context.run(callback, self)
        return True


_Waiting = tuple[Callable[[], bool], _Waiter, bool]


class AsyncConnection(ClientBase):
    """A client of the local bus on asyncio; see `bccnd.aio.connect`. Use it on the loop that it was made on."""

    def __init__(self, session: Session) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = Transport(session, self._loop, self._on_turn, room=self._room)
        super().__init__(session, self._transport)
        #: what tasks wait for, and whether something has to be read for that
        self._waiting: list[_Waiting] = []
        self._sent_at_once = 0
        #: calls callbacks, while messages wait for them
        self._dispatching: asyncio.Task[None] | None = None
        self._router.on_dropped = self._on_dropped

    # -- what to receive

    def subscribe(self, *patterns: str, limit: int = MAX_EVENTS) -> AsyncSubscription:
        """Subscribe to the messages whose channel matches one of the patterns. A pattern may be subscribed to
        repeatedly.

            async for message in bus.subscribe("a/>"):
                ...

        ``await`` is optional: it waits until the request is sent, unless the daemon is away, and returns the
        subscription. A program that ignores the subscription receives its messages from the connection. From its first
        use on, the subscription takes the messages that match it, as `bccnd.Subscription` does.

        Raises BusError, and subscribes to nothing: bad_pattern (a pattern holds no NUL), too_long.
        """
        return AsyncSubscription(self, patterns, limit)

    async def unsubscribe(self, *patterns: str) -> None:
        """Unsubscribe from patterns, as `bccnd.Connection.unsubscribe` does."""
        await self._finish(self._calls.unsubscribe(*patterns))

    async def receive(self, timeout: float | None = None) -> Event | None:
        """The next message, gap, refusal, or ``Reconnected`` after the daemon was away; None after ``timeout`` seconds.
        Raises ConnectionLost when the connection has ended."""
        return await self._next(self._router.inbox, timeout)

    def __aiter__(self) -> AsyncConnection:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        return self._next_message(self._router.inbox)

    # -- callbacks

    async def listen(self, pattern: str, callback: AsyncCallback) -> None:
        """Subscribe to a pattern; ``callback`` is called with each message that matches. Messages to everyone, and to
        this program, are passed to every callback. Messages for callbacks are not returned by `receive`.

        If a callback returns an awaitable, as an ``async def`` does, it is awaited before the callbacks of the next
        message are called. If one raises, the loop's exception handler gets the error, and the others are called.

        Raises BusError: bad_pattern, as `subscribe` does.
        """
        self._add_subscription(pattern)
        self._router.listen(pattern, callback)
        await self._finish(self._calls.announce())

    async def unlisten(self, pattern: str, callback: Callable[[Message], object]) -> bool:
        """Remove a callback of `listen`; False if it was not registered."""
        found = self._router.unlisten(pattern, callback)
        if found:
            await self.unsubscribe(pattern)
        return found

    async def respond(self, pattern: str, callback: AsyncResponder) -> None:
        """Answer requests on the channels that match a pattern: ``callback`` is called with each, and what it returns
        (awaited, if that is an awaitable) is sent to the program that asks; see `request`. With None nothing is sent.

            async def add(question):
                return str(sum(map(int, question.text.split())))

            await bus.respond("calc/add", add)

        Other messages that match are ignored. As with `listen`, callbacks are called one after the other.
        """
        await self.listen(pattern, Replies(self, callback))

    # -- what to send

    async def publish(self, chan: str, payload: Data = b"") -> None:
        """Send a message to the clients of this host and to the segment. Waits while the daemon is busy.

        Raises BusError: bad_channel, too_long, connection_lost. `sync` returns refusals of the daemon.
        """
        frame = publication(chan, payload)
        self._sent_at_once += 1
        if self._sent_at_once >= _TURN:
            self._sent_at_once = 0
            await asyncio.sleep(0)
        if self._transport.send_now(frame):  # nearly always
            self._session.published()
        else:
            await self._finish(self._calls.publish(frame))

    async def publish_many(self, messages: Iterable[tuple[str, Data]]) -> None:
        """Send messages, pairs of channel and payload, as `publish` does, with fewer system calls. Where this raises,
        some of the messages may have been sent."""
        packets = starmap(publication, messages)
        while some := list(islice(packets, _TURN)):
            await self._finish(self._calls.publish_all(some, self._transport.send_many_now))
            await asyncio.sleep(0)

    async def send_all(self, payload: Data = b"") -> None:
        """Send a message to every listener, whatever it has subscribed to."""
        await self.publish("!", payload)

    async def send_to(self, target: str, payload: Data = b"") -> None:
        """Send a message to one identity (``host/program/pid``) or to all below a prefix (``host/program/*``). Raises
        BusError: bad_target where the target is empty."""
        await self.publish(directed(target), payload)

    # -- modes

    async def tag(self, text: str) -> None:
        """Change the identity, as `bccnd.Connection.tag` does."""
        await self._finish(self._calls.set_tag(text))

    async def echo(self, on: bool) -> None:
        """Whether this program also receives its own messages, if it has subscribed to them; the default is True."""
        await self._finish(self._calls.set_modes(("echo", SWITCH[on], SWITCH)))

    async def batch(self, on: bool) -> None:
        """Whether the daemon puts many waiting messages into one packet; see `bccnd.connect`."""
        await self._finish(self._calls.set_modes(("!/bccn/batch", SWITCH[on], SWITCH)))

    async def local(self, on: bool) -> None:
        """Whether messages that this program publishes stay on this host, as `bccnd.Connection.local` sets it."""
        await self._finish(self._calls.set_local(on))

    async def blocking(self, soft: str | None = None, hard: str | None = None) -> None:
        """Choose how the daemon treats a message while this program does not read; the values are those of
        `bccnd.Connection.blocking`."""
        await self._finish(self._calls.set_modes(("blocking/soft", soft, SOFT), ("blocking/hard", hard, HARD)))

    async def order(self, order: str) -> None:
        """Choose the order in which queued messages are sent; the values are those of `bccnd.Connection.order`."""
        await self._finish(self._calls.set_modes(("order", order, ORDERS)))

    # -- requests

    async def request(self, chan: str, payload: Data = b"", timeout: float = PATIENCE) -> Message:
        """Publish a request on a channel, and return the first reply, as `bccnd.Connection.request` does.

        reply = await bus.request("calc/add", "1 2")
        print(reply.text)

        """
        return await self._finish(self._calls.request(chan, payload, timeout))

    async def identity(self) -> str:
        """The identity of this program on the segment."""
        return (await self.ask(frames.WHOAMI)).decode("ascii")

    async def sync(self, timeout: float = PATIENCE) -> list[Refusal]:
        """Wait until the daemon has processed all that was sent before, as `bccnd.Connection.sync` does. Returns its
        refusals since the last call."""
        return await self._finish(self._calls.sync(timeout))

    async def ask(self, key: Data, payload: Data | None = None, timeout: float = PATIENCE) -> bytes:
        """Send a control message and wait for the answer, as `bccnd.Connection.ask` does."""
        return await self._finish(self._calls.ask(key, payload, timeout))

    # -- the connection

    def fileno(self) -> int:
        """The descriptor of the socket, which only this connection may read. It changes with each reconnection, and is
        -1 while the daemon is away."""
        return -1 if self._transport.sock is None else self._transport.sock.fileno()

    def close(self) -> None:
        """Disconnect from the daemon. Calls that wait raise ConnectionLost."""
        super().close()
        if self._dispatching is not None and self._dispatching is not asyncio.current_task(self._loop):
            self._dispatching.cancel()
        self._on_turn()

    # -- inside

    async def _next_message(self, inbox: EventQueue) -> Message:
        events, transport = inbox.events, self._transport
        while not inbox.closed:
            if events and transport.reads and type(events[0]) is Message:  # nothing else has to be done for it
                return events.popleft()  # type: ignore[return-value]
            event = self._take(inbox)
            if type(event) is Message:
                return event
            if event is None:
                await self._wait(partial(self._router.is_ready, inbox))
            else:
                raise_refused(event)
        raise StopAsyncIteration

    async def _next(self, inbox: EventQueue, timeout: float | None) -> Event | None:
        """The next event of a queue; None after ``timeout`` seconds. Raises ConnectionLost at the end."""
        event = self._take(inbox)
        if event is not None:
            return event
        if timeout is not None and timeout <= 0:
            await asyncio.sleep(0)  # others have their turn, however often this is called
            self._transport.on_readable()
        await self._until(
            partial(self._router.is_ready, inbox), None if timeout is None else time.monotonic() + timeout
        )
        return self._take(inbox)

    def _take(self, inbox: EventQueue) -> Event | None:
        event = self._router.take_for(inbox)
        if not self._transport.reads:
            self._transport.arrange()
        return event

    async def _finish(self, steps: Steps[R]) -> R:
        """Take the steps of a call, one after the other; returns its result."""
        try:
            while True:
                wait = next(steps)
                self._transport.flush()
                await self._until(*wait)
        except StopIteration as end:
            result: R = end.value
            return result
        finally:
            steps.close()

    async def _until(self, condition: Callable[[], bool], deadline: float | None, reads: bool = True) -> None:
        """Wait until a condition holds, or for the deadline (monotonic). Raises ConnectionLost at the end."""
        while not condition():
            woken = self._wait(condition, reads)
            if deadline is None:
                await woken
                continue
            try:
                async with asyncio.timeout_at(deadline):
                    await woken
            except TimeoutError:
                return

    def _wait(self, condition: Callable[[], bool], reads: bool = True) -> _Waiter:
        """A future that is done when a condition holds, or the connection has ended. Raises ConnectionLost."""
        self._session.check()
        woken = _Waiter(loop=self._loop)
        if self._waiting:
            self._waiting = [one for one in self._waiting if not one[1].done()]  # those were cancelled
        self._waiting.append((condition, woken, reads))
        if not self._transport.reads:
            self._transport.arrange()
        return woken

    def _room(self, reads: bool) -> int:
        """How many packets may be read: if something is waited for, any number; otherwise what the fullest queue has
        room for. Once that was nothing, reading goes on when half of the events were taken."""
        for condition, woken, reading in self._waiting:
            if reading and not woken.done() and not condition():
                return self._most
        if not self._session.ready:
            return self._most
        router, limit = self._router, MAX_EVENTS if reads else MAX_EVENTS // 2
        if router.listeners is not None:  # a program on callbacks may never receive anything else
            room = limit - len(router.listened.events)
        else:
            room = min(min(limit, inbox.limit) - len(inbox.events) for inbox in router.inboxes())
        return min(self._most, max(0, room))

    def _on_turn(self) -> None:
        """Something has happened: call the callbacks, and wake the tasks that have waited for it."""
        if self._router.listened.events and self._dispatching is None and not self._transport.closed:
            self._dispatching = self._loop.create_task(self._dispatch())
        ready: list[_Waiting] = []
        waiting: list[_Waiting] = []
        for one in self._waiting:
            if one[1].done():
                continue
            (ready if self._session.over or one[0]() else waiting).append(one)
        self._waiting = waiting
        if len(ready) == 1 and asyncio.current_task(self._loop) is None and ready[0][1].wake():
            return  # of several, none goes on before the others know that they may
        for _, woken, _ in ready:
            woken.set_result(None)

    def _on_dropped(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and the connection with it
            self._loop.call_soon_threadsafe(self._transport.flush)

    async def _dispatch(self) -> None:
        """Call the callbacks for the messages that wait, one message after the other."""
        results: list[object] = []
        try:
            for number in count(1):
                if not self._router.listened.events:
                    return
                results = self._router.call_next(self._report)
                for result in results:
                    await self._result_of(result)
                if not self._transport.reads:
                    self._transport.arrange()
                if not number % _TURN:
                    await asyncio.sleep(0)
        finally:
            self._dispatching = None
            for result in results:
                if isinstance(result, Coroutine):
                    result.close()  # where this was cancelled

    async def _result_of(self, result: object) -> None:
        if isinstance(result, Awaitable):
            try:
                await result
            except Exception as error:  # noqa: BLE001 - whatever a callback raises, the next one is called
                self._report(error)

    def _report(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": "a callback of bccnd raised an error", "exception": error})


class AsyncSubscription(SubscriptionBase):
    """The messages of one `AsyncConnection.subscribe`: iterate over it with ``async for``, or await its `receive`;
    ``async with`` closes it. Otherwise it is like `bccnd.Subscription`."""

    def __init__(self, bus: AsyncConnection, patterns: Sequence[str], limit: int = MAX_EVENTS) -> None:
        super().__init__(bus, patterns, limit)
        bus._transport.flush()

    def __await__(self) -> Generator[Any, None, AsyncSubscription]:
        yield from self._bus._finish(self._bus._calls.announce()).__await__()
        return self

    async def receive(self, timeout: float | None = None) -> Event | None:
        """Like `AsyncConnection.receive`, for the messages of this subscription; None also after `close`."""
        inbox = self._activate()
        event: Event | None = None if inbox.closed else await self._bus._next(inbox, timeout)
        return event

    def __aiter__(self) -> AsyncSubscription:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        message: Coroutine[Any, Any, Message] = self._bus._next_message(self._activate())
        return message

    def close(self) -> None:
        """Unsubscribe, and drop the waiting messages; iterating ends."""
        super().close()
        self._bus._on_turn()

    async def __aenter__(self) -> AsyncSubscription:
        self._activate()
        return await self

    async def __aexit__(self, *_error: object) -> None:
        self.close()
