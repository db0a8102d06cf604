"""The calls of a program as steps on its session, without I/O. A step is something to wait for; each client waits in
its own way, and then asks for the next step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, NamedTuple, TypeVar

from bccnd.client.event_queues import Refusal, raise_refused
from bccnd.client.message import Data, Message, check_key, publication, to_bytes
from bccnd.client.outgoing import Outgoing, Request
from bccnd.client.request_reply import write_request
from bccnd.client.session import PATIENCE, Session
from bccnd.core.wire import frames
from bccnd.errors import BusError, RequestTimeout

#: the values of modes
SOFT: Final = ("queue", "discard", "block", "error")
HARD: Final = ("discard", "block", "error")
ORDERS: Final = ("queue", "stack", "random")
SWITCH: Final = ("off", "on")

R = TypeVar("R")


class Wait(NamedTuple):
    """Wait until ``condition`` holds, or for ``deadline`` (monotonic). Unless this ``reads``, nothing that arrives
    meanwhile is needed."""

    condition: Callable[[], bool]
    deadline: float | None = None
    reads: bool = True


Steps = Generator[Wait, None, R]


class Calls:
    """The calls that take more than one step. Each raises BusError."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def transmit(self, *outgoing: Outgoing, deadline: float | None = None) -> Steps[None]:
        """Send frames, until the last is done or one has failed."""
        session, last = self._session, outgoing[-1]

        def settled() -> bool:
            # Past the deadline what comes is of no interest: there may be no end of it.
            late = deadline is not None and time.monotonic() > deadline
            return late or last.done or any(one.error for one in outgoing)

        try:
            for one in outgoing:
                session.enqueue(one, time.monotonic())
            yield Wait(settled, deadline, isinstance(last, Request))
        finally:
            for one in outgoing:
                session.withdraw(one)
                if isinstance(one, Request) and not one.done:
                    one.abandoned = True
        for one in outgoing:
            if one.error is not None:
                raise one.error

    def publish(self, frame: bytes) -> Steps[None]:
        """Send a message once; this waits for room in the socket, or up to PATIENCE for the daemon."""
        return self.transmit(Outgoing(frame, self._session.published))

    def publish_all(self, packets: list[bytes], send_now: Callable[[list[bytes]], int]) -> Steps[None]:
        """Send messages; ``send_now`` sends the first of them, and returns how many the socket has taken."""
        while packets:
            taken = send_now(packets)
            self._session.published(taken)
            if taken < len(packets):
                yield from self.publish(packets[taken])
            packets = packets[taken + 1 :]

    def announce(self) -> Steps[None]:
        """Send changes of patterns. A daemon that is away receives them when it is back."""
        session = self._session
        yield Wait(lambda: session.over or session.is_announced, reads=False)

    def unsubscribe(self, *patterns: str) -> Steps[None]:
        keys = list(map(to_bytes, patterns))
        for pattern in keys:
            check_key(pattern, "bad_pattern")
        for pattern in keys:
            self._session.check()
            if not self._session.unsubscribe(pattern):  # the daemon refuses that
                yield from self.transmit(Outgoing(frames.unsubscribe(pattern)))
        yield from self.announce()

    def set_modes(self, *changes: tuple[str, str | None, tuple[str, ...]]) -> Steps[None]:
        """Set modes, each given by its name, value and possible values, unless the value is None."""
        for _, value, values in changes:
            if value not in (None, *values):
                raise BusError("bad_mode", f"{value!r} is none of {', '.join(values)}")
        for name, value, _ in changes:
            if value is not None:
                frame = frames.request(f"{name}/{value}".encode("ascii"))
                yield from self.transmit(Outgoing(frame, partial(self._session.modes.__setitem__, name, frame)))

    def set_tag(self, text: str) -> Steps[None]:
        yield from self._perform(lambda: self._session.accepted(frames.TAG, to_bytes(text)))
        self._session.tag = to_bytes(text)

    def set_local(self, on: bool) -> Steps[None]:
        key = frames.LOCAL_ON if on else frames.LOCAL_OFF
        yield from self._perform(lambda: self._session.accepted(key))
        self._session.modes["local"] = frames.request(key)

    def sync(self, timeout: float) -> Steps[list[Refusal]]:
        yield from self._perform(lambda: [self._session.sync()], timeout)
        self._session.check_confirmed()
        return self._session.router.take_refusals()

    def ask(self, key: Data, payload: Data | None = None, timeout: float = PATIENCE) -> Steps[bytes]:
        control = to_bytes(key), None if payload is None else to_bytes(payload)
        answered = yield from self._perform(lambda: self._session.request(*control), timeout)
        return answered.answer or b""

    def request(self, chan: str, payload: Data, timeout: float) -> Steps[Message]:
        deadline = time.monotonic() + timeout
        token = b"%x" % int.from_bytes(os.urandom(8))
        question = Outgoing(publication(chan, write_request(token, to_bytes(payload))), self._session.published)
        router = self._session.router
        pending = router.expect_reply(token, chan)
        try:
            yield from self.transmit(question, deadline=deadline)
            if not question.done:
                raise self._session.timeout_error(timeout)
            yield Wait(lambda: pending.answer is not None, deadline)
        finally:
            router.forget_reply(token)
        if isinstance(pending.answer, Refusal):
            raise_refused(pending.answer)
        if not isinstance(pending.answer, Message):
            raise RequestTimeout("no_answer", f"no program answered on {chan} within {timeout:g} s")
        return pending.answer

    def _perform(self, make: Callable[[], list[Request]], timeout: float = PATIENCE) -> Steps[Request]:
        """Send requests until the last is answered, to the next daemon again; return it."""
        deadline = time.monotonic() + timeout
        while True:
            requests = make()
            yield from self.transmit(*requests, deadline=deadline)
            if not requests[-1].done:
                raise self._session.timeout_error(timeout)
            if not any(one.lost for one in requests):
                return requests[-1]
