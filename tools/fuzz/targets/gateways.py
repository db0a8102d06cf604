"""What comes to gateways: over links, from subscribers and publishers of the broker, and from the daemon itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from unittest.mock import MagicMock, patch

from bccnd.config import BrokerSettings
from bccnd.core.wire import frames
from bccnd.errors import BadFrame
from bccnd.gateways.broker import codec
from bccnd.gateways.broker.subscriber import CountingSocket, Subscriber
from bccnd.gateways.broker.subscriber_server import SubscriberServer
from bccnd.gateways.broker.topics import channel_of, patterns_of, topic_of
from bccnd.gateways.frame_connection import FrameConnection
from bccnd.gateways.nng.filter import Filter, read_head

_FILTERS: Final = (
    Filter(("",), nameless=True),
    Filter(("",), nameless=False),
    Filter(("a/", "!"), nameless=True),
    Filter(("a/*/b", "c/>"), nameless=False),
)
#: the slowest loop would do: nothing waits in these
_LOOP: Final = asyncio.new_event_loop()
#: with so few ids and subscriptions that an input reaches the limits
_SETTINGS: Final = BrokerSettings.model_validate({"tcp": "127.0.0.1:1", "max_ids": 3, "max_subscriptions": 4})


def _taken(read: Callable[[bytes], Any], data: bytes) -> object:
    try:
        return read(data)
    except BadFrame as bad:
        return bad.reason


def link(data: bytes) -> object:
    """The frames of links, taken apart and put together again; and what filters say of a datagram."""
    outcome: list[object] = []
    for read, build in ((frames.read_forwarded, frames.forwarded), (frames.read_arrived, frames.arrived)):
        parts = _taken(read, data)
        if isinstance(parts, tuple) and all(not isinstance(one, str) or one.isascii() for one in parts):
            again = build(*parts)
            assert read(again.partition(b"\0")[2]) == parts, f"{parts} became {again!r}"
        outcome.append(parts)
    outcome.append(_taken(frames.read_meta, data))
    outcome.append(_taken(lambda raw: frames.read_tapped(b"!/tap/accepted", raw), data))
    outcome += [one.check(data) for one in _FILTERS]
    head = read_head(data)
    assert all(one in data for one in head)
    return [*outcome, head]


async def _subscriber(data: bytes, cuts: list[int]) -> object:
    """What a server does when bytes come in these pieces: to its bus, to its status, and what it keeps."""
    bus, status = MagicMock(), MagicMock()
    server = SubscriberServer(_SETTINGS, bus, status, patience=30.0)
    with CountingSocket() as sock:
        one = Subscriber(sock, "127.0.0.1:1", server, 65_536)
        server.subscribers[one] = None
        one.connection_made(MagicMock())
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if start < end and not one.ended:
                one.get_buffer(-1)[: end - start] = data[start:end]
                one.buffer_updated(end - start)
        assert one.ended or len(one._rest) < codec.REQUEST, "more waits than a request"
    topics = [(name, server.sessions.record(name).topics) for name in sorted(server.sessions.changed)]
    return bus.mock_calls, status.mock_calls, topics, one.ended


def broker(data: bytes) -> object:
    """A subscriber's bytes: whatever the cut, the same is understood."""
    whole = _LOOP.run_until_complete(_subscriber(data, []))
    middle = sorted([len(data) // 3, min(len(data) // 3 + 1, len(data)), len(data) * 2 // 3])
    cut = _LOOP.run_until_complete(_subscriber(data, middle))
    assert cut == whole, f"{cut} in pieces, {whole} as a whole"
    return whole


def publication(data: bytes) -> object:
    """A publication: as it is read it is written; a topic is written as a channel, and read from it again."""
    found = codec.read_publication(data)
    outcome: list[object] = [found]
    if found is not None:
        again = codec.read_publication(found.topic.ljust(50, b"\0") + bytes([found.kind]) + found.content)
        assert again == found
        raw = codec.message("192.0.2.1:1", found.topic, found.kind, found.content)
        assert len(raw) == codec.MESSAGE
        outcome.append(raw.rstrip(b"\0"))
    topic = data[: codec.MAX_TOPIC].partition(b"\0")[0]
    chan = channel_of(topic)
    if topic:
        assert topic_of(chan) == topic, f"{topic!r} became {chan!r}, and that {topic_of(chan)!r}"
    return [*outcome, chan, patterns_of(topic), topic_of(data[:200])]


async def _line(data: bytes) -> object:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    outcome: list[object] = []
    line = FrameConnection(
        "/nowhere",
        4,
        on_frames=outcome.append,
        on_emptied=lambda: outcome.append("emptied"),
        on_up=lambda: outcome.append("up"),
    )
    with patch("bccnd.client.transport.dial", lambda _address: ours):
        line.start()
    with theirs:
        for packet in data.split(b"\n--\n")[:8]:
            with suppress(OSError):
                theirs.send(packet)
        line.read()
        for number in range(6):
            line.send(b"MSG a\0%d" % number, 1.0)
        assert len(line.waiting) <= line.room
    line.close()
    return outcome


def line(data: bytes) -> object:
    """Packets from the daemon: frames, or the line is given up with a reason."""
    return _LOOP.run_until_complete(_line(data))
