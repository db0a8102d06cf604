"""The asyncio client: the calls of the blocking one on a transport that is driven by callbacks of the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from bccnd.client.events import MAX_EVENTS, Event, EventQueue, raise_refused
from bccnd.client.message import Message
from bccnd.client.request_reply import is_awaitable
from bccnd.client.session import Session
from bccnd.client.shared_calls import Calls, PatternMessages
from bccnd.client.transport import TURN, Transport, usual_path

__all__ = ["AsyncConnection", "AsyncSubscription", "connect"]

R = TypeVar("R")


class _Awaited(Coroutine[Any, Any, R]):
    """What is awaited runs `_run`; also for callers that take coroutines only, such as asyncio.create_task."""

    _work: Coroutine[Any, Any, Any] | None = None

    async def _run(self) -> R:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, R]:
        return self._run().__await__()

    def send(self, value: Any) -> Any:
        """As that of a coroutine, for asyncio."""
        self._work = self._work or self._run()
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """As that of a coroutine, for asyncio."""
        self._work = self._work or self._run()
        return self._work.throw(*error)


class _Messages:
    """Iterates over the messages of a queue of a connection."""

    _inbox: EventQueue

    def _connection(self) -> AsyncConnection:
        raise NotImplementedError

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        bus, inbox = self._connection(), self._inbox
        while not inbox.closed:
            event = bus._take(inbox) if inbox.events else await bus._receive(inbox, None)
            if isinstance(event, Message):
                return event
            if event is not None:
                raise_refused(event)
        raise StopAsyncIteration


class connect(_Awaited["AsyncConnection"]):  # noqa: N801 - called as a function
    """Connect to the daemon, as `bccnd.connect` does, for programs on asyncio.

        import asyncio
        import bccnd.aio

        async def main():
            async with bccnd.aio.connect() as bus:
                await bus.publish("cardsys/hello", "hello, world")
                async for message in bus.subscribe("cardsys/", "door/*/opened"):
                    print(message.src, message.chan, message.text)

        asyncio.run(main())

    ``await bccnd.aio.connect()`` returns the connection itself. The options are those of `bccnd.connect`.

    Several tasks may use a connection at once. If several receive from the same connection or subscription, each event
    goes to one of them. A cancelled call loses no event, and the connection stays usable.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        reconnect: bool = True,
        batch: bool = True,
        dialect: str | None = None,
        wait: float | None = 0.0,
        away: bool = False,
    ) -> None:
        self._session = Session(path or usual_path(), batch=batch, reconnect=reconnect, dialect=dialect)
        self._session.router.shows_away = away
        self._wait = wait
        self._bus: AsyncConnection | None = None

    async def _run(self) -> AsyncConnection:
        bus = AsyncConnection(self._session)
        for pause in bus._attempts(self._wait):
            await asyncio.sleep(pause)
        return bus

    def close(self) -> None:
        """Do not connect."""
        if self._work is not None:
            self._work.close()

    async def __aenter__(self) -> AsyncConnection:
        self._bus = await self
        return self._bus

    async def __aexit__(self, *_error: object) -> None:
        if self._bus is not None:
            self._bus.close()


class AsyncConnection(Calls, _Messages):
    """A client of the local bus on asyncio; see `bccnd.aio.connect`. Use it on the loop that it was made on."""

    def __init__(self, session: Session) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = Transport(session, self._loop, self._on_turn, may_read=self._may_read)
        super().__init__(session, self._transport)
        #: what tasks wait for, and whether something has to be read for that
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None], bool]] = []
        self._sent_at_once = 0
        #: calls callbacks of one message whose results are awaited
        self._calling: asyncio.Task[None] | None = None
        self._dispatches = False
        self._router.on_dropped = self._on_dropped
        self._inbox = self._router.inbox

    def _connection(self) -> AsyncConnection:
        return self

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

    async def receive(self, timeout: float | None = None) -> Event | None:
        """The next message, gap, refusal, or ``Reconnected`` after the daemon was away; None after ``timeout`` seconds.
        Raises ConnectionLost when the connection has ended."""
        inbox = self._router.inbox
        return self._take(inbox) if inbox.events else await self._receive(inbox, timeout)

    def fileno(self) -> int:
        """The descriptor of the socket, which only this connection may read. It changes with each reconnection, and is
        -1 while the daemon is away."""
        return -1 if self._transport.sock is None else self._transport.sock.fileno()

    def close(self) -> None:
        super().close()
        if self._calling is not None and self._calling is not _current_task():
            self._calling.cancel()
        self._on_turn()

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.close()

    async def _receive(self, inbox: EventQueue, timeout: float | None) -> Event | None:
        if timeout is not None and timeout <= 0:
            await asyncio.sleep(0)  # others have their turn, however often this is called
            self._transport.on_readable()
        deadline = None if timeout is None else time.monotonic() + timeout
        unowned = self._router.unowned if inbox is not self._router.inbox else list
        await self._until(lambda: bool(inbox.events or inbox.closed or unowned()), deadline)
        return self._take(inbox) if inbox.events else next(iter(self._router.take(unowned()[:1])), None)

    def _take(self, inbox: EventQueue) -> Event:
        event = inbox.take()
        if not self._transport.reads:
            self._transport.arrange()
        return event

    async def _send(self, frame: bytes, on_sent: Callable[[], None]) -> None:
        await self._count_sent(1)
        await super()._send(frame, on_sent)

    async def _send_many(self, packets: list[bytes], on_sent: Callable[[], None]) -> None:
        await self._count_sent(len(packets))
        await super()._send_many(packets, on_sent)

    async def _count_sent(self, count: int) -> None:
        self._sent_at_once += count
        if self._sent_at_once >= TURN:  # others have their turn
            self._sent_at_once = 0
            await asyncio.sleep(0)

    async def _until(self, condition: Callable[[], bool], deadline: float | None = None, *, reads: bool = True) -> bool:
        while not condition():
            self._session.check()
            one = condition, self._loop.create_future(), reads
            self._waiting.append(one)
            if not self._transport.reads:
                self._transport.arrange()
            try:
                if deadline is None:
                    await one[1]
                else:
                    async with asyncio.timeout_at(deadline):
                        await one[1]
            except TimeoutError:
                return condition()
            finally:
                self._waiting.remove(one)
        return True

    def _may_read(self, reads: bool) -> bool:
        """Whether something is waited for, or there is room for what may come. Once there was none, reading goes on
        when half of the events were taken."""
        limit = MAX_EVENTS if reads else MAX_EVENTS // 2
        router = self._router
        if not self._session.ready or (len(router.inbox.events) < limit and not router.is_split):
            return True
        for done, _, needed in self._waiting:
            if needed and not done():
                return True
        if router.listeners is not None:  # a program on callbacks may never receive anything else
            return len(router.listened.events) < limit
        return all(len(inbox.events) < min(limit, inbox.limit) for inbox in router.inboxes())

    def _on_turn(self) -> None:
        """Something has happened: call the callbacks, and wake the tasks that have waited for it."""
        self._schedule_dispatch()
        for condition, woken, _ in self._waiting:
            if not woken.done() and (self._session.over or condition()):
                woken.set_result(None)

    def _on_dropped(self) -> None:
        with suppress(RuntimeError):  # the loop has ended, and the connection with it
            self._loop.call_soon_threadsafe(self._transport.flush)

    # -- callbacks

    def _schedule_dispatch(self) -> None:
        if self._router.listened.events and not self._dispatches and self._calling is None:
            self._dispatches = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Call the callbacks of some messages, up to one for which something has to be awaited."""
        self._dispatches = False
        for _ in range(TURN):
            if not self._router.listened.events:
                break
            awaited = [one for one in self._router.call_next(self._report) if is_awaitable(one)]
            if awaited:
                self._calling = self._loop.create_task(self._await_all(awaited))  # type: ignore[arg-type]
                break
        self._schedule_dispatch()
        if not self._transport.reads:
            self._transport.arrange()

    async def _await_all(self, results: list[Awaitable[object]]) -> None:
        try:
            for one in results:
                try:
                    await one
                except Exception as error:  # noqa: BLE001 - whatever a callback raises, the next one is called
                    self._report(error)
        finally:
            self._calling = None
            for one in results:
                if isinstance(one, Coroutine):
                    one.close()  # where this was cancelled
            self._schedule_dispatch()

    def _report(self, error: Exception) -> None:
        self._loop.call_exception_handler({"message": "a callback of bccnd raised an error", "exception": error})


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None


class AsyncSubscription(PatternMessages, _Awaited["AsyncSubscription"], _Messages):
    """The messages of one `AsyncConnection.subscribe`: iterate over it with ``async for``, or await its `receive`;
    ``async with`` closes it. Otherwise it is like `bccnd.Subscription`."""

    def __init__(self, bus: AsyncConnection, patterns: Sequence[str], limit: int = MAX_EVENTS) -> None:
        super().__init__(bus, patterns, limit)
        bus._transport.flush()

    async def _run(self) -> AsyncSubscription:
        """Wait until the daemon was sent this, unless it is away."""
        await self._bus._tell()
        return self

    async def receive(self, timeout: float | None = None) -> Event | None:
        """Like `AsyncConnection.receive`, for the messages of this subscription; None also after `close`."""
        inbox = self._inbox
        if inbox.closed:
            return None
        self._bus._router.activate(inbox)
        event: Event | None = self._bus._take(inbox) if inbox.events else await self._bus._receive(inbox, timeout)
        return event

    def _connection(self) -> AsyncConnection:
        if not self._inbox.closed:
            self._bus._router.activate(self._inbox)
        bus: AsyncConnection = self._bus
        return bus

    def close(self) -> None:
        super().close()
        self._bus._on_turn()

    async def __aenter__(self) -> AsyncSubscription:
        self._bus._router.activate(self._inbox)
        await self
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.close()
