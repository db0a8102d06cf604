"""A daemon with the TCP broker, its publisher and its subscribers as plain sockets, for the tests of several files."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, Final, NamedTuple

from bccnd.cli.shared.connection import fetch_listing
from tests.e2e.harness import PATIENCE, Daemon, wait
from tests.support import Closing, free_port

MESSAGE: Final = 1603


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


class Sub(Closing):
    """A subscriber."""

    def __init__(self, port: int, name: bytes, *topics: bytes) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.sock.sendall(name.ljust(11, b"\0") + b"".join(asking(0, topic) for topic in topics))

    def receive(self) -> Got:
        """The next message."""
        return took_apart(self.receive_raw())

    def receive_raw(self) -> bytes:
        return self.sock.recv(MESSAGE, socket.MSG_WAITALL)

    def close(self) -> None:
        self.sock.close()


class Broker:
    """A daemon with a broker beside it, and its publisher."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, **section: Any) -> None:
        self.tcp, self.udp = free_port(), free_port()
        places = {"tcp": f"127.0.0.1:{self.tcp}", "udp": f"127.0.0.1:{self.udp}", "state": "subscriptions.db"}
        gateways = {"broker": {**places, **section}}
        self.daemon = Daemon(folder, {**(settings or {}), "gateways": gateways}, start=False)
        self.publisher = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.publisher.bind(("127.0.0.1", 0))

    def patterns(self) -> list[str] | None:
        """What the broker has subscribed to on the bus; None while it is not there."""
        with self.daemon.connect() as bus:
            rows = [row["patterns"] for row in fetch_listing(bus, "clients") if row["dialect"] == "broker"]
        return rows[0] if rows else None

    @property
    def address(self) -> bytes:
        return b"127.0.0.1:%d" % self.publisher.getsockname()[1]

    def ready(self, name: bytes, *topics: bytes) -> Sub:
        """A subscriber whose subscriptions, to topics of no other one, are in force."""
        before = len(self.patterns() or [])
        one = Sub(self.tcp, name, *topics)
        wait(lambda: len(self.patterns() or []) == before + len(topics), "the subscriptions")
        return one

    def publish(self, topic: bytes, kind: int, content: bytes) -> None:
        self.publisher.sendto(publication(topic, kind, content), ("127.0.0.1", self.udp))

    def dropped(self, reason: str) -> float:
        return self.daemon.metric("gateway_dropped_total", gateway="broker", reason=reason)

    def peers(self) -> float:
        return self.daemon.metric("gateway_peers", gateway="broker")

    def __enter__(self) -> Broker:
        self.daemon.start()
        wait(lambda: self.patterns() is not None, "the broker to be on the bus")
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.publisher.close()
        self.daemon.__exit__(kind, *rest)
