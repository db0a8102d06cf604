"""A daemon with the TCP broker, its publisher and its subscribers as plain sockets, for the tests of several files."""

from __future__ import annotations

import socket
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from bccnd.cli.shared.connection import fetch_listing
from tests.e2e.harness import PATIENCE, Daemon, payloads, wait
from tests.support import free_port

MESSAGE: Final = 1603
_NUMBERS: Final = count(1)


class Got(NamedTuple):
    """A message to a subscriber, taken apart by hand."""

    peer: bytes
    topic: bytes
    kind: int
    data: bytes


def took_apart(raw: bytes) -> Got:
    assert len(raw) == MESSAGE
    return Got(raw[:50].rstrip(b"\0"), raw[50:101].rstrip(b"\0"), raw[101], raw[102:].rstrip(b"\0"))


def asking(kind: int, topic: bytes = b"") -> bytes:
    return bytes([kind]) + topic + bytes(51 - len(topic))


def publication(topic: bytes, kind: int, content: bytes) -> bytes:
    return topic.ljust(50, b"\0") + bytes([kind]) + content


class Sub:
    """A subscriber. With ``receive_buffer`` it has little room for what it does not read."""

    def __init__(self, port: int, name: bytes | None = None, *topics: bytes, receive_buffer: int = 0) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(("127.0.0.1", port))
        if name is not None:
            self.sock.sendall(name.ljust(11, b"\0") + b"".join(asking(0, topic) for topic in topics))

    @property
    def address(self) -> bytes:
        return b"%b:%d" % (self.sock.getsockname()[0].encode(), self.sock.getsockname()[1])

    def say(self, *requests: bytes) -> None:
        self.sock.sendall(b"".join(requests))

    def subscribe(self, *topics: bytes) -> None:
        self.say(*(asking(0, topic) for topic in topics))

    def receive(self) -> Got:
        """The next message, but for the marks of `Broker.settle`."""
        while (got := self.hear_any()).topic.startswith(b"mark/"):
            pass
        return got

    def hear_any(self) -> Got:
        data = b""
        while len(data) < MESSAGE:
            chunk = self.sock.recv(MESSAGE - len(data))
            assert chunk, f"closed after {len(data)} bytes of a message"
            data += chunk
        return took_apart(data)

    def ended(self) -> bool:
        """Whether the broker closes the connection within a long time, without another message."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.sock.close()


class Broker:
    """A daemon with a broker beside it, its publisher, and its subscribers, which are closed with it."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, **section: Any) -> None:
        self.tcp, self.udp = free_port(), free_port()
        self.state = folder / "subscriptions.db"
        broker = {"tcp": f"127.0.0.1:{self.tcp}", "udp": f"127.0.0.1:{self.udp}", "state": self.state.name, **section}
        self.daemon = Daemon(folder, {**(settings or {}), "gateways": {"broker": broker}}, start=False)
        self.publisher = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.publisher.bind(("127.0.0.1", 0))
        self.subs: list[Sub] = []
        #: datagrams that the publisher has sent
        self.published = 0

    def start(self) -> None:
        before = self.daemon.output().count("the broker serves")
        self.daemon.start()
        self.wait_until_ready(before)

    def wait_until_ready(self, before: int) -> None:
        wait(lambda: self.daemon.output().count("the broker serves") > before, "the broker")
        # And it has reached the daemon.
        wait(self.pid, "the broker to be on the bus")

    def row(self) -> dict[str, Any]:
        """What the daemon knows of the broker's connection."""
        return self._listed("clients", "dialect")

    def report(self) -> dict[str, Any]:
        """What the broker has reported to the daemon."""
        return self._listed("gateways", "gateway")

    def _listed(self, topic: str, key: str) -> dict[str, Any]:
        with self.daemon.connect() as bus:
            return next((row for row in fetch_listing(bus, topic) if row[key] == "broker"), {})

    def pid(self) -> int:
        return int(self.row().get("pid", 0))

    @property
    def address(self) -> bytes:
        return b"127.0.0.1:%d" % self.publisher.getsockname()[1]

    def sub(self, name: bytes | None, *topics: bytes, receive_buffer: int = 0) -> Sub:
        one = Sub(self.tcp, name, *topics, receive_buffer=receive_buffer)
        self.subs.append(one)
        return one

    def ready(self, name: bytes, *topics: bytes) -> Sub:
        """A subscriber whose subscriptions are in force, with the broker and on the bus."""
        one = self.sub(name, *topics)
        self.settle(one)
        return one

    def settle(self, one: Sub) -> None:
        """Wait until all that it has asked for is in force, and take what it has not read.

        The last thing that it asks for is a mark. What the broker publishes after that mark has come reaches the bus
        behind all that the broker has asked of the bus before; it is dropped where very much of that is under way.
        """
        mark = b"mark/%d" % next(_NUMBERS)
        with self.daemon.connect(mark.decode()) as bus:
            one.subscribe(mark)
            one.sock.settimeout(0.02)

            def heard() -> bool:
                self.publish(mark, 3, b"is it there")
                with suppress(TimeoutError):
                    return bool(one.sock.recv(1, socket.MSG_PEEK))
                return False

            def passed() -> bool:
                self.publish(mark, 3, b"it is")
                return b"it is" in payloads(bus, 1000, 0.02)

            wait(heard, "the broker to know the subscription")
            wait(passed, "the bus to know the subscription")
            one.sock.settimeout(PATIENCE)
            self.publish(mark, 3, b"the end")
            while one.hear_any()[1:] != (mark, 3, b"the end"):
                pass
        one.say(asking(1, mark))

    def publish(self, topic: bytes, kind: int, content: bytes) -> None:
        self.send(publication(topic, kind, content))

    def send(self, *datagrams: bytes) -> None:
        for one in datagrams:
            self.publisher.sendto(one, ("127.0.0.1", self.udp))
            self.published += 1

    def dropped(self, reason: str) -> float:
        return self.daemon.metric("gateway_dropped_total", gateway="broker", reason=reason)

    def peers(self) -> float:
        return self.daemon.metric("gateway_peers", gateway="broker")

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for one in self.subs:
            one.close()
        self.publisher.close()
        self.daemon.__exit__(kind, *rest)
