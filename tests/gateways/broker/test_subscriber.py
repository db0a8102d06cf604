"""One subscriber's connection: what waits is bounded, whole and in order, and every message is sent or counted."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, cast

import pytest

from bccnd.gateways.broker.codec import MESSAGE
from bccnd.gateways.broker.subscriber import CountingSocket, Subscriber
from bccnd.gateways.broker.subscriber_server import SubscriberServer

LIMIT: Final = 8 * MESSAGE + 100


class Server:
    """Remembers ends with the messages that were not sent."""

    def __init__(self) -> None:
        self.subscribers: dict[Subscriber, None] = {}
        self.ends: list[tuple[str, int]] = []

    def on_end(self, subscriber: Subscriber, reason: str) -> None:
        self.ends.append((reason, -(-subscriber.waiting // MESSAGE)))


async def connect(server: Server) -> tuple[Subscriber, socket.socket]:
    """A connection with little room in the kernel, and its other end."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        other.connect(listener.getsockname())
        accepted, _ = listener.accept()
    sock = CountingSocket(fileno=accepted.detach())
    sock.setblocking(False)
    subscriber = Subscriber(sock, "127.0.0.1:1", cast("SubscriberServer", server), LIMIT)
    await asyncio.get_running_loop().connect_accepted_socket(lambda: subscriber, sock)
    return subscriber, other


def numbered(number: int) -> bytes:
    return b"%d" % number + bytes(MESSAGE - len(b"%d" % number))


@pytest.mark.parametrize("end", ["closed", "reset", "ended"])
@pytest.mark.parametrize("batch", [1, 3, 50])
def test_every_message_is_received_whole_and_in_order_or_counted(batch: int, end: str) -> None:
    async def scenario() -> None:
        server = Server()
        subscriber, other = await connect(server)
        loop = asyncio.get_running_loop()
        other.setblocking(False)
        accepted, received = [], b""
        for number in range(600):
            if subscriber.offer(numbered(number)):
                accepted.append(number)
            if number % batch == 0:
                subscriber.flush()
            assert subscriber.waiting <= LIMIT
            if number % 40 == 0:
                received += await loop.sock_recv(other, 20_000)
        subscriber.flush()
        assert 0 < len(accepted) < 600
        waiting = -(-subscriber.waiting // MESSAGE)
        assert waiting > 0
        if end == "ended":
            subscriber.end("slow")
            while data := await loop.sock_recv(other, 65_536):
                received += data
        else:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", end == "reset", 0))
            other.close()
        while not server.ends:
            await asyncio.sleep(0)
        other.close()
        ((reason, unsent),) = server.ends
        assert reason == ("slow" if end == "ended" else "")
        assert subscriber.sent + unsent == len(accepted)
        assert unsent <= waiting
        starts = range(0, len(received) - MESSAGE + 1, MESSAGE)
        whole = [int(received[at : at + MESSAGE].rstrip(b"\0")) for at in starts]
        assert whole == accepted[: len(whole)]
        if end == "ended":  # what the kernel had accepted before comes still
            assert len(whole) == subscriber.sent

    asyncio.run(scenario())


def test_it_is_stuck_if_it_takes_nothing_and_loses_messages() -> None:
    async def scenario() -> None:
        subscriber, other = await connect(Server())
        with other:
            assert not subscriber.is_stuck(100.0, 30.0)
            while subscriber.offer(b"x" * MESSAGE):
                pass
            assert not subscriber.is_stuck(101.0, 30.0)  # something was taken since the last look
            assert not subscriber.offer(b"x" * MESSAGE)
            assert not subscriber.is_stuck(130.9, 30.0)
            assert subscriber.is_stuck(131.0, 30.0)
            other.setblocking(False)
            while subscriber.waiting:
                await asyncio.get_running_loop().sock_recv(other, 65_536)
            assert not subscriber.is_stuck(1000.0, 30.0)
            while subscriber.offer(b"x" * MESSAGE):
                pass
            assert not subscriber.is_stuck(1001.0, 30.0)
            assert not subscriber.is_stuck(9000.0, 30.0)  # nothing is dropped
            subscriber.end("")

    asyncio.run(scenario())
