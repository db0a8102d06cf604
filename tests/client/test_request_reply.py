"""Requests and replies between programs, with either client and a real bus."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

import bccnd
import bccnd.aio
from bccnd.client.request_reply import read_request
from tests.client.sessions import Join, both
from tests.endpoint.segments import in_threads
from tests.refusals import refused
from tests.support import PATIENCE, Hub
from tests.turning import turning


def add(question: bccnd.Message) -> str | None:
    return None if not question.payload else str(sum(map(int, question.text.split())))


@contextmanager
def blocking(path: str) -> Iterator[None]:
    """A program on the blocking client that adds numbers."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            bus.dispatch(0.01)

    with bccnd.connect(path) as bus:
        bus.respond("calc/add", add)
        bus.sync()
        with in_threads(serve, over=over):
            yield


@contextmanager
def on_asyncio(path: str) -> Iterator[None]:
    """The same on asyncio, with a coroutine."""
    ready, over = threading.Event(), threading.Event()

    async def answer(question: bccnd.Message) -> str | None:
        await asyncio.sleep(0)
        return add(question)

    async def serve() -> None:
        async with bccnd.aio.connect(path) as bus:
            await bus.respond("calc/add", answer)
            await bus.sync()
            ready.set()
            while not over.is_set():
                await asyncio.sleep(0.01)

    with in_threads(lambda: asyncio.run(serve()), over=over):
        assert ready.wait(PATIENCE)
        yield


@both
@pytest.mark.parametrize("serve", [blocking, on_asyncio])
def test_a_question_is_answered_to_who_has_asked(
    hub: Hub, join: Join, serve: Callable[[str], AbstractContextManager[None]]
) -> None:
    with turning(hub.loop), serve(hub.path), join(hub.path) as bus, join(hub.path) as other:
        bus.subscribe("calc/")
        answer = bus.request("calc/add", "1 2", timeout=PATIENCE)
        assert (answer.text, answer.form, answer.src) == ("3", "directed", bus.identity())
        assert bus.request("calc/add", b"20 22").payload == b"42"
        with pytest.raises(bccnd.RequestTimeout):
            bus.request("calc/add", "", timeout=0.05)
        with pytest.raises(bccnd.RequestTimeout):
            bus.request("calc/nobody", timeout=0.05)
        with refused("bad_channel"):
            bus.request("two words")
        assert bus.sync() == []
        seen = [bus.receive(0) for _ in range(4)]
        assert {event.chan for event in seen if isinstance(event, bccnd.Message)} == {"calc/add", "calc/nobody"}
        other.publish("calc/add", "no question")
        assert other.request("calc/add", "1").text == "1"


def test_several_questions_may_wait_at_once(hub: Hub) -> None:
    async def ask() -> list[str]:
        async with bccnd.aio.connect(hub.path) as bus:
            answers = await asyncio.gather(*(bus.request("calc/add", f"{number} 1") for number in range(50)))
        return [answer.text for answer in answers]

    with turning(hub.loop), on_asyncio(hub.path):
        assert asyncio.run(ask()) == [str(number + 1) for number in range(50)]


def test_answering_can_be_taken_back(hub: Hub) -> None:
    with turning(hub.loop), bccnd.connect(hub.path) as bus:
        bus.respond("calc/add", add)
        assert bus.unlisten("calc/add", add)
        assert not bus.unlisten("calc/add", add)
        assert bus.sync() == []


@pytest.mark.parametrize(
    ("src", "form", "payload"),
    [
        ("relay02/x/7", "plain", b"1 2"),
        ("relay02/x/7", "plain", b"request:"),
        ("relay02/x/7", "plain", b"request:|1 2"),
        ("relay02/x/7", "plain", b"request:" + b"a" * 65 + b"|1 2"),
        ("relay02/x/7", "directed", b"request:a|1 2"),
        ("?", "plain", b"request:a|1 2"),
        ("", "plain", b"request:a|1 2"),
    ],
)
def test_what_cannot_be_answered_is_no_request(src: str, form: str, payload: bytes) -> None:
    assert read_request(bccnd.Message(src, 1, "a", payload, form, "local", 1)) is None
