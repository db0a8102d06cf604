"""What comes to gateways: over links, from subscribers and publishers of the broker, and from the daemon itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from unittest.mock import patch

from bccnd.core import frames
from bccnd.errors import BadFrame
from bccnd.gateways import broker_codec as codec
from bccnd.gateways import broker_state, links
from bccnd.gateways.broker_sessions import Sessions
from bccnd.gateways.broker_tcp import Subscriber
from bccnd.gateways.broker_topics import Interests, channel_of, patterns_of, topic_of
from bccnd.gateways.line import Line

_FILTERS: Final = (
    links.Filter(("",), nameless=True),
    links.Filter(("",), nameless=False),
    links.Filter(("a/", "!"), nameless=True),
    links.Filter(("a/*/b", "c/>"), nameless=False),
)
#: the slowest loop would do: nothing waits in these
_LOOP: Final = asyncio.new_event_loop()
#: ids and subscriptions, so few that an input reaches the limits
_MAX_IDS, _MAX_SUBSCRIPTIONS = 3, 4


def _taken(read: Callable[[bytes], Any], data: bytes) -> object:
    try:
        return read(data)
    except BadFrame as bad:
        return bad.reason


def link(data: bytes) -> object:
    """The frames of links, taken apart and put together again; and what filters say of a datagram."""
    outcome: list[object] = []
    for read, build in ((frames.read_passed, frames.passed), (frames.read_arrived, frames.arrived)):
        parts = _taken(read, data)
        if isinstance(parts, tuple) and all(not isinstance(one, str) or one.isascii() for one in parts):
            again = build(*parts)
            assert read(again.partition(b"\0")[2]) == parts, f"{parts} became {again!r}"
        outcome.append(parts)
    outcome.append(_taken(frames.read_meta, data))
    outcome.append(_taken(lambda raw: frames.read_tapped(b"!/tap/accepted", raw), data))
    outcome += [one.refuses(data) for one in _FILTERS]
    chan = links.channel(data)
    assert chan in data
    return [*outcome, chan, links.nameless(data)]


class _Owner:
    """Whoever owns subscribers, with real sessions behind it; what it is told is kept."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.sessions = Sessions(_MAX_IDS, _MAX_SUBSCRIPTIONS, 0)
        self.interests = Interests(limit=8)

    def on_hello(self, subscriber: Subscriber, name: bytes) -> None:
        refused = "no_id" if not name else self.sessions.connect(name, 1.0)
        self.told.append(("hello", name, refused))
        if refused:
            subscriber.end(refused)
        else:
            subscriber.name = name

    def on_request(self, subscriber: Subscriber, kind: int, topic: bytes) -> None:
        done: object = None
        if kind == codec.SUBSCRIBE:
            if done := self.sessions.subscribe(subscriber.name, topic):
                self.told.append(self.interests.add([topic]))
        elif kind == codec.UNSUBSCRIBE:
            if done := self.sessions.unsubscribe(subscriber.name, topic):
                self.told.append(self.interests.remove([topic]))
        else:
            subscriber.end("")
        self.told.append(("request", kind, topic, done))

    def on_gone(self, subscriber: Subscriber, reason: str) -> None:
        self.told.append(("gone", reason))
        if subscriber.name:
            self.sessions.disconnect(subscriber.name, 2.0)


async def _subscriber(data: bytes, cuts: list[int]) -> tuple[list[object], list[Any]]:
    """What an owner is told when bytes come in these pieces, and what there is to keep of it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    owner = _Owner()
    one = Subscriber(ours, ("127.0.0.1", 1), owner, 65_536, 1.0)
    with theirs:
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if start < end and not one.closed:
                theirs.sendall(data[start:end])
                one._on_readable()
        if not one.closed:
            assert len(one._inbox) < codec.REQUEST, "more waits than a request"
    records = owner.sessions.records(3.0)
    if not one.closed:
        one.end("")
    return owner.told, records


def broker(data: bytes) -> object:
    """A subscriber's bytes: whatever the cut, the same is understood; and what is kept of it can be read again."""
    whole, records = _LOOP.run_until_complete(_subscriber(data, []))
    middle = [len(data) // 3, len(data) // 3 + 1, len(data) * 2 // 3]
    cut, _ = _LOOP.run_until_complete(_subscriber(data, middle))
    assert cut == whole, f"{cut} in pieces, {whole} as a whole"
    assert broker_state.parse(broker_state.dump(records)) == records
    return whole, records


def publication(data: bytes) -> object:
    """A publication: as it is read it is written; a topic is written as a channel, and read from it again."""
    found = codec.read_publication(data)
    outcome: list[object] = [found]
    if found is not None:
        again = codec.read_publication(codec.publication(found.topic, found.kind, found.content))
        assert again == found
        raw = codec.message("192.0.2.1:1", found.topic, found.kind, found.content)
        assert len(raw) == codec.MESSAGE
        outcome.append(codec.read_message(raw))
    topic = data[: codec.MAX_TOPIC].partition(b"\0")[0]
    chan = channel_of(topic)
    if topic:
        assert topic_of(chan) == topic, f"{topic!r} became {chan!r}, and that {topic_of(chan)!r}"
    outcome += [chan, patterns_of(topic), topic_of(data[:200])]
    if len(data) == codec.MESSAGE:
        outcome.append(codec.read_message(data))
    return outcome


def brokerstate(data: bytes) -> object:
    """The file of subscriptions: read or refused; what is read can be restored, within the limits, and kept again."""
    try:
        records = broker_state.parse(data)
    except ValueError as error:
        return str(error)
    sessions = Sessions(_MAX_IDS, _MAX_SUBSCRIPTIONS, 3600.0)
    sessions.restore(records, 10.0)
    assert len(sessions) <= _MAX_IDS
    kept = sessions.records(10.0)
    assert all(len(one.topics) <= _MAX_SUBSCRIPTIONS for one in kept)
    return kept, broker_state.dump(kept)


async def _line(data: bytes) -> object:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    outcome: list[object] = []
    line = Line(
        "/nowhere",
        4,
        on_frames=outcome.append,
        on_emptied=lambda: outcome.append("emptied"),
        on_up=lambda: outcome.append("up"),
        on_away=outcome.append,
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
