"""Topics of the broker <-> channels of the bus, and what is asked of the bus for all subscribers together.

Law: a topic that a channel can hold is that channel. Of any other, each byte that stands in the way is written as
``%`` and two hexadecimal digits in capitals: what no channel can hold, ``%`` itself, and ``!`` at the beginning. A
channel that no topic is written as stands for itself. ``/``, ``*`` and ``+`` are never escaped, so that a pattern is
written in the same way, level by level.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from bccnd.core.bccn1 import FIELD_BYTES
from bccnd.gateways.broker_codec import MAX_TOPIC

#: bytes that stand for themselves, wherever they are
_PLAIN: Final = FIELD_BYTES.translate(None, b"%")
_WRITTEN: Final = [bytes([byte]) if byte in _PLAIN else b"%%%02X" % byte for byte in range(256)]
_ESCAPED: Final = re.compile(rb"%([0-9A-F]{2})")
#: everything, in the broker's dialect
EVERYTHING: Final = b"*"
#: patterns held on the bus before everything is asked for: a quarter of what it allows (bus.max_subscriptions)
MAX_PATTERNS: Final = 1024


def channel_of(topic: bytes) -> bytes:
    """The channel that a topic, or a pattern for topics, is written as."""
    if topic.translate(None, _PLAIN):
        topic = b"".join([_WRITTEN[byte] for byte in topic])
    return b"%21" + topic[1:] if topic.startswith(b"!") else topic


def topic_of(chan: bytes) -> bytes | None:
    """The topic that a channel is the writing of; None if it would be too long for one, or hold a NUL."""
    topic = chan
    if b"%" in chan:
        read = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), chan)
        if channel_of(read) == chan:
            topic = read
    return topic if topic and len(topic) <= MAX_TOPIC and b"\0" not in topic else None


def patterns_of(topic: bytes) -> tuple[bytes, ...]:
    """What is to be asked of the bus for a subscription: it, written as a channel, and where that is not the same also
    as it is, for channels that stand for themselves."""
    chan = channel_of(topic)
    return (chan,) if chan == topic or topic.startswith(b"!") else (chan, topic)


class Interests:
    """What all subscribers together want of the bus: each pattern once, however many want it.

    Changes are told as pairs, whether to subscribe and to what, in the order in which nothing is missed. Where there
    are more than ``limit`` patterns everything is asked for instead, until there are half as many again.
    """

    def __init__(self, limit: int = MAX_PATTERNS) -> None:
        self._limit = limit
        self._wanted: dict[bytes, int] = {}
        self._wide = False

    def add(self, topics: Iterable[bytes]) -> list[tuple[bool, bytes]]:
        """Somebody wants these, too."""
        return list(self._added(topics))

    def remove(self, topics: Iterable[bytes]) -> list[tuple[bool, bytes]]:
        """Somebody who wanted these does not any more."""
        return list(self._removed(topics))

    def _added(self, topics: Iterable[bytes]) -> Iterator[tuple[bool, bytes]]:
        for pattern in (pattern for topic in topics for pattern in patterns_of(topic)):
            count = self._wanted[pattern] = self._wanted.get(pattern, 0) + 1
            if count > 1 or self._wide:
                continue
            if len(self._wanted) <= self._limit:
                yield True, pattern
                continue
            self._wide = True
            if EVERYTHING not in self._wanted or pattern == EVERYTHING:
                yield True, EVERYTHING
            yield from ((False, held) for held in self._wanted if held not in (pattern, EVERYTHING))

    def _removed(self, topics: Iterable[bytes]) -> Iterator[tuple[bool, bytes]]:
        for pattern in (pattern for topic in topics for pattern in patterns_of(topic)):
            self._wanted[pattern] -= 1
            if self._wanted[pattern]:
                continue
            del self._wanted[pattern]
            if not self._wide:
                yield False, pattern
            elif len(self._wanted) <= self._limit // 2:
                self._wide = False
                yield from ((True, held) for held in self._wanted if held != EVERYTHING)
                if EVERYTHING not in self._wanted:
                    yield False, EVERYTHING
