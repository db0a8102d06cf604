"""What the tests of gateways share: one that runs, the bus played by the test, bare peers on TCP."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from bccnd.config import NngSettings
from bccnd.core.wire import frames
from bccnd.gateways.broker.gateway import BrokerGateway
from bccnd.gateways.nng.gateway import NngGateway
from tests.client.sessions import Bare
from tests.support import Closing, free_port, wait

PATIENCE: Final = 90.0
#: how a connection between two BUS sockets begins: SP, version 0, protocol 7.0
HELLO: Final = b"\0SP\0" + struct.pack(">HH", 0x70, 0)
LINK: Final = b"MSG !/link/\0"
REPORT: Final = b"CMSG !/bccn/gateway\0"


def url() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


def place(where: str) -> tuple[str, int]:
    host, _, port = where.rpartition("//")[2].rpartition(":")
    return host, int(port)


class TestBus(Bare):
    """A daemon of which the test sees every packet, and says what it grants and refuses."""

    __test__ = False

    def reply(self, packet: bytes) -> list[bytes]:
        return [packet] if packet.startswith(REPORT) else super().reply(packet)

    def give(self, *passed: tuple[int, bytes]) -> None:
        """Send what passes here, with the way it came by, as one packet."""
        self.send(frames.batch([frames.forwarded(way, datagram) for way, datagram in passed]))

    @property
    def packets(self) -> list[bytes]:
        return [packet for connection in self.received for packet in connection]

    @property
    def subscribed(self) -> int:
        """The number of patterns of the last connection."""
        packets = self.received[-1]
        return sum(packet.startswith(b"SUB !/link/") for packet in packets) - sum(
            packet.startswith(b"UNSUB !/link/") for packet in packets
        )

    def arrived(self) -> list[tuple[int, int, str, bytes]]:
        """What links have brought: way, time, peer, datagram."""
        got = [frames.read_arrived(packet[len(LINK) :]) for packet in self.packets if packet.startswith(LINK)]
        assert {name for name, *_ in got} <= {"nng"}
        return [(way, when, peer, datagram) for _, way, when, peer, datagram in got]

    def brought(self) -> list[bytes]:
        return [datagram for *_, datagram in self.arrived()]

    def report(self) -> dict[str, Any]:
        """The last one; empty before there is one."""
        reports = [packet for packet in self.packets if packet.startswith(REPORT)]
        return json.loads(reports[-1].partition(b"\0")[2]) if reports else {}

    def dropped(self, reason: str) -> int:
        return int(self.report().get("dropped", {}).get(reason, 0))


class Events(logging.Handler):
    """Keeps every event that a gateway in this process logs, until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, str, dict[str, Any]]] = []
        logger = logging.getLogger("bccnd")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "event"):
            self.records.append((record.event, record.getMessage(), record.__dict__["fields"]))

    def texts(self, event: str) -> list[str]:
        return [text for name, text, _ in list(self.records) if name == event]

    def close(self) -> None:
        logging.getLogger("bccnd").removeHandler(self)
        super().close()


class RunningGateway:
    """A gateway in a thread of its own, and what it logs; at its end it has counted so many ``bugs``."""

    def __init__(self, gateway: BrokerGateway | NngGateway, bugs: int = 0) -> None:
        self.gateway, self._bugs = gateway, bugs
        self.events = Events()
        self.texts = self.events.texts
        self._runner, self._stop = asyncio.Runner(loop_factory=asyncio.new_event_loop), asyncio.Event()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=lambda: self._runner.run(gateway.run(self._stop)))

    def __enter__(self) -> Self:
        self._thread.start()
        wait(lambda: self.texts("gateway_ready"), "the gateway", PATIENCE)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self._runner.close()
        self.events.close()
        if kind is None:
            assert self.gateway.status.dropped.get("bug", 0) == self._bugs
            assert bool(self.texts("internal_error")) == bool(self._bugs)


class Links(RunningGateway):
    """A gateway for links; ``bus`` is the other end of it."""

    def __init__(self, folder: Path, nng: Mapping[str, Any], horizon: float = 2.0) -> None:
        self.bus = TestBus(str(folder / "bus.sock"))
        settings = NngSettings.model_validate(nng)
        super().__init__(NngGateway(settings, str(self.bus.address), folder=str(folder), horizon=horizon))

    def peers(self, count: int) -> None:
        """Wait until there are so many."""
        wait(lambda: self.bus.report().get("peers_connected") == count, f"{count} peers", PATIENCE)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        self.bus.close()


class RawPeer(Closing):
    """A peer that is nothing but a TCP connection: it sends and reads what it likes."""

    def __init__(self, where: str, hello: bytes = HELLO, *, small: bool = False) -> None:
        self.sock = socket.socket()
        if small:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(place(where))
        self.name = "{}:{}".format(*self.sock.getsockname())
        self._rest = b""
        self.sock.sendall(hello)
        if hello == HELLO:
            assert self._read(8) == HELLO

    def send(self, *messages: bytes) -> None:
        self.sock.sendall(b"".join(struct.pack(">Q", len(one)) + one for one in messages))

    def _read(self, size: int) -> bytes:
        while len(self._rest) < size:
            data = self.sock.recv(1 << 20)
            if not data:
                raise EOFError
            self._rest += data
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def receive(self) -> bytes:
        (size,) = struct.unpack(">Q", self._read(8))
        return self._read(size)

    def all(self) -> Iterator[bytes]:
        """What comes until the other end has closed."""
        with suppress(EOFError, ConnectionResetError):
            while True:
                yield self.receive()

    def ended(self) -> bool:
        """Whether the other end has closed; what it had sent is kept."""
        self.sock.settimeout(0.0)
        try:
            while data := self.sock.recv(1 << 20):
                self._rest += data
            return True
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        finally:
            self.sock.settimeout(PATIENCE)

    def close(self) -> None:
        self.sock.close()
