"""The local bus: what clients send, what they read, and what visitors of the metrics send."""

from __future__ import annotations

import atexit
import re
import shutil
import socket
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from unittest.mock import patch

from bccnd.client.session import Session
from bccnd.core.wire import frames as wire
from bccnd.errors import BadFrame
from bccnd.net.http import HttpServer
from bccnd.net.loop import Loop
from tests.rules import bus_limits
from tests.support import Hub, turn

#: between the packets of an input
SPLIT: Final = b"\n--\n"
#: numbers that differ from run to run: clocks, and seqs, which follow the clock
_NUMBERS: Final = re.compile(rb"\d{10,}")
_LENGTHS: Final = re.compile(rb"BCCN1\[\d+\]")
#: so few that an input reaches them
_LIMITS: Final = bus_limits(max_subscriptions=8, user={"subscriptions": 32})


@cache
def _hub() -> Hub:
    folder = tempfile.mkdtemp(prefix="bccnd-fuzz-")
    hub = Hub(Path(folder), limits=_LIMITS)

    def close() -> None:
        hub.close()
        shutil.rmtree(folder)

    atexit.register(close)
    return hub


def frames(data: bytes) -> object:
    """Packets of one client, before the eyes of others, of whom one is served in batches: it is answered or served,
    ended by no bug, and when it has gone nothing is left of it."""
    hub = _hub()
    hub.sent.clear()
    watchers = [hub.connect(b"", b"!/own/"), hub.connect(b"")]
    watchers[1].send(wire.request(wire.BATCH_ON), wire.request(wire.META_ON))
    one = hub.connect()
    ended = sum(hub.bus.counters.ended.all().values())
    heard: list[bytes] = []
    for packet in data.split(SPLIT)[:16]:
        one.send(packet)
        hub.settle()
        heard += one.waiting()
    assert not hub.bus.counters.ended["bug"], "a client was ended by a bug"
    assert sum(hub.bus.counters.ended.all().values()) == ended, "a client was ended"
    who = one.client
    own = (who.base, b"!/cred/%d/%d/%d" % (who.peer.gid, who.peer.uid, who.peer.pid))
    outcome = [_shown(packets, own) for packets in (heard, watchers[0].all(), watchers[1].all(), hub.sent)]
    for peer in (one, *watchers):
        peer.close()
        hub._peers.remove(peer)
    hub.turn()
    assert not hub.bus.clients
    assert not hub.bus.queue_bytes
    assert not hub.routes.subscriptions
    assert not len(hub.routes)
    assert sum(account.subscriptions + account.clients for account in hub.bus.quota) == 0
    return outcome


def _shown(packets: list[bytes], own: tuple[bytes, bytes]) -> list[object]:
    """Packets without what differs from run to run: who we are, clocks, and lengths of what holds them."""
    shown: list[object] = []
    for packet in packets:
        if packet.startswith(b"MSGS "):
            shown.append(_shown(wire.read_batch(packet), own))
        elif packet.startswith(b"CMSG !/bccn/stats\0"):
            shown.append("a listing")
        else:
            plain = _LENGTHS.sub(b"BCCN1[N]", _NUMBERS.sub(b"N", packet))
            shown.append(plain.replace(own[0], b"ME").replace(own[1], b"!/cred/ME"))
    return shown


def client(data: bytes) -> object:
    """What a client reads: events or a refusal to read it; and what takes frames apart, for whom it is meant."""
    outcome: list[object] = []
    session = Session()
    session.enqueue(session.sync(), 0.0)
    list(session.data_to_send())
    for packet in data.split(SPLIT)[:16]:
        try:
            session.feed(packet, 1.0, 7)
        except BadFrame as bad:
            outcome.append(bad.reason)
        while session.events:
            outcome.append(tuple(session.router.inbox.take()))
        try:
            found = wire.read_batch(packet)
        except BadFrame as bad:
            outcome.append(bad.reason)
        else:
            assert wire.read_batch(wire.batch(found)) == found
            outcome.append(found)
    return outcome


def http(data: bytes) -> object:
    """A request, in two pieces: it is answered as HTTP/1.1 is, or cut off, without a bug, and nothing is left of it."""
    loop = Loop()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    asked: list[str] = []

    def page(accept: str) -> tuple[int, str, bytes]:
        asked.append(accept)
        return 200, "text/plain", b"a page\n" * 50

    server = HttpServer(loop, listener, {"/": page, "/metrics": page}, lambda _reason: None, hosts=("x",))
    answer, over = b"", False
    with patch("bccnd.log.bug") as bug, socket.create_connection(listener.getsockname()) as visitor:
        visitor.setblocking(False)
        with suppress(OSError):
            for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
                visitor.send(piece)
                turn(loop, 2)
            visitor.shutdown(socket.SHUT_WR)
        for _ in range(6):
            turn(loop)
            with suppress(BlockingIOError):
                try:
                    received = visitor.recv(1 << 16)
                except ConnectionError:
                    received = b""
                answer += received
                over = over or not received
        visitor.close()
        turn(loop, 3)
    assert not bug.called, bug.call_args
    assert not server._connections, "a connection that has ended is still here"
    assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:40]
    server.close()
    loop.close()
    return answer, over, asked
