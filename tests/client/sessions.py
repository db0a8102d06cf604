"""A scripted daemon for tests of the clients, and the asyncio client driven one call at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import bccnd
from bccnd.client.message import Message
from bccnd.core.wire import frames
from tests.support import PATIENCE, Closing, wait

META = b"CMSG !/bccn/meta/on"
BATCH = b"CMSG !/bccn/batch/on"


def frame(key: bytes, payload: bytes = b"") -> bytes:
    """A message as the daemon sends it to who wants to know its sender."""
    return frames.message(key, frames.meta(b"relay02/x/7", 5, 6, "local") + payload)


def batch(*payloads: bytes) -> bytes:
    """Messages on one key as the daemon sends them to who wants them together."""
    return frames.batch([frame(b"a", payload) for payload in payloads])


class Driven(Closing):
    """The asyncio client (or a subscription of it), one call after another: each runs the loop until it is done."""

    def __init__(self, path: str | None = None, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        try:
            self._entered = bccnd.aio.connect(path, **options)
            self.bus = self.run(self._entered.__aenter__())
        except BaseException:
            self.loop.close()
            raise

    def run(self, coroutine: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.bus, name)
        if name == "subscribe":
            return lambda *patterns, **options: DrivenSubscription(self, patterns, options)
        if not asyncio.iscoroutinefunction(value):
            return value
        return lambda *arguments, **options: self.run(value(*arguments, **options))

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                yield self.run(self.bus.__anext__())
            except StopAsyncIteration:
                return

    def close(self) -> None:
        self.run(self._entered.__aexit__(None, None, None))
        assert not asyncio.all_tasks(self.loop)
        self.loop.close()


class DrivenSubscription(Driven):
    def __init__(self, bus: Driven, patterns: tuple[str, ...], options: dict[str, int]) -> None:
        self.loop = bus.loop

        async def subscribe() -> Any:
            return await bus.bus.subscribe(*patterns, **options)

        self.bus = self.run(subscribe())

    def __enter__(self) -> Any:
        self.run(self.bus.__aenter__())
        return self

    def close(self) -> None:
        self.run(self.bus.__aexit__())


Join = Callable[..., bccnd.Connection]
both = pytest.mark.parametrize("join", [bccnd.connect, Driven], ids=["blocking", "asyncio"])


class Bare(Closing):
    """A daemon of few words, on a bare socket: ``said`` holds what each connection has sent, one after the other."""

    def __init__(self, address: str | bytes) -> None:
        self.address = address
        self.received: list[list[bytes]] = []
        self.answers: dict[bytes, list[bytes]] = {}
        self.refuses: bytes | None = None
        #: it reads while this is set
        self.reads = threading.Event()
        self.reads.set()
        self.start()

    def start(self) -> None:
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.address)
        self._listener.listen()
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def stop(self) -> None:
        """Go away, and leave nothing behind."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()
        for sock in self._connections:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in self._connections:
            sock.close()
        self._connections, self._threads = [], []
        if isinstance(self.address, str):
            os.unlink(self.address)

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def last(self) -> socket.socket:
        """The connection of the client that has come last."""
        wait(lambda: self._connections, "a client")
        return self._connections[-1]

    def send(self, *packets: bytes) -> None:
        """Send to the client that has come last."""
        for packet in packets:
            self.last.send(packet)

    def heard(self, packet: bytes) -> None:
        """Wait until who has come last has said this."""
        wait(lambda: self.received and packet in self.received[-1], f"{packet!r}")

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if self.refuses is not None:
                sock.send(self.refuses)
                sock.close()
                continue
            output: list[bytes] = []
            self.received.append(output)
            self._connections.append(sock)
            self._threads.append(threading.Thread(target=self._serve, args=(sock, output)))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket, output: list[bytes]) -> None:
        with contextlib.suppress(OSError):
            while packet := sock.recv(1 << 20):
                output.append(packet)
                for one in self.reply(packet):
                    sock.send(one)
                self.reads.wait(PATIENCE)

    def reply(self, packet: bytes) -> list[bytes]:
        return [packet] if packet.startswith(b"CMSG !/bccn/sync") else self.answers.get(packet, [])

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            self.stop()


def without_syncs(output: list[bytes]) -> list[bytes]:
    return [packet for packet in output if not packet.startswith(b"CMSG !/bccn/sync")]


async def until(done: Callable[[], object]) -> None:
    """Wait for something to be so, within the time that the caller allows."""
    while not done():
        await asyncio.sleep(0.002)


def restarted(bare: Bare, bus: Any) -> None:
    """Let another daemon come, and the client be told."""
    bare.restart()
    assert isinstance(bus.receive(PATIENCE), bccnd.Reconnected)
