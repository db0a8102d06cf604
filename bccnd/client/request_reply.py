"""Requests and replies between programs: how they are written in payloads, and the callbacks that answer.

A request is a message whose payload begins with ``request:<token>|``. Whoever answers sends a directed message to its
sender, whose payload begins with ``reply:<token>|``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from bccnd.client.message import Data, Message, to_bytes, with_payload
from bccnd.client.router import REPLY

REQUEST: Final = b"request:"
_LONGEST_TOKEN: Final = 64
#: the flag of the code of an `async def`
_COROUTINE: Final = 0x80

#: what `respond` takes: a function that gets a question and returns the answer, or None for no answer
Responder = Callable[[Message], Data | None]
AsyncResponder = Callable[[Message], Data | None] | Callable[[Message], Awaitable[Data | None]]


def write_request(token: bytes, payload: bytes) -> bytes:
    return REQUEST + token + b"|" + payload


def write_reply(token: bytes, payload: bytes) -> bytes:
    return REPLY + token + b"|" + payload


def read_request(message: Message) -> tuple[bytes, Message] | None:
    """The token of a request, and the request with its payload only; None for another message, or one whose sender
    cannot be answered."""
    if message.form != "plain" or not message.payload.startswith(REQUEST) or "/" not in message.src:
        return None
    token, bar, payload = message.payload[len(REQUEST) :].partition(b"|")
    if not bar or not 0 < len(token) <= _LONGEST_TOKEN:
        return None
    return token, with_payload(message, payload)


class Replies:
    """A callback for `listen` that answers requests; ``bus`` is a client of either kind. It is equal to the function
    that answers, by which `unlisten` finds it."""

    def __init__(self, bus: Any, respond: Callable[[Message], Any]) -> None:
        self._bus = bus
        self._respond = respond

    def __eq__(self, other: object) -> bool:
        return self._respond == other

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, message: Message) -> Awaitable[None] | None:
        if (found := read_request(message)) is None:
            return None
        token, question = found
        answer = self._respond(question)
        send = self._when_known if isinstance(answer, Awaitable) else self._reply
        return send(message.src, token, answer)

    def _reply(self, src: str, token: bytes, answer: Data | None) -> Awaitable[None] | None:
        """Send an answer, if there is one; on asyncio, return what sends it."""
        return None if answer is None else self._bus.send_to(src, write_reply(token, to_bytes(answer)))

    async def _when_known(self, src: str, token: bytes, answer: Awaitable[Data | None]) -> None:
        if (sending := self._reply(src, token, await answer)) is not None:
            await sending


def is_coroutine_function(callback: Callable[..., object]) -> bool:
    """Whether calling this gives a coroutine. (`inspect` says so, too, but takes as long to load as all of this.)"""
    function: Any = callback
    while isinstance(function, partial):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None and callable(function):
        code = getattr(type(function).__call__, "__code__", None)
    return bool(code is not None and code.co_flags & _COROUTINE)


def refuse_coroutine(callback: Callable[..., object]) -> None:
    """Raises TypeError for an ``async def``, which the blocking client cannot run."""
    if is_coroutine_function(callback):
        raise TypeError(f"{callback!r} is an async function, which only bccnd.aio can call")
