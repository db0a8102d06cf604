"""Translates topics to channels of the bus, and merges the subscriptions of all subscribers.

A topic that is a valid channel is that channel. In any other, each byte that a channel cannot hold, ``%`` itself and a
leading ``!`` are written as ``%`` and two hexadecimal digits in capitals. A channel that is not the escaped form of any
topic stands for itself. ``/``, ``*`` and ``+`` are never escaped, so patterns are translated in the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from bccnd.core.matching.pattern_charges import PatternCharges
from bccnd.core.matching.patterns import DIALECTS, compile_pattern
from bccnd.core.wire.bccn1 import FIELD_BYTES
from bccnd.gateways.broker.codec import MAX_TOPIC

_UNESCAPED: Final = FIELD_BYTES.translate(None, b"%")
_ESCAPES: Final = [bytes([byte]) if byte in _UNESCAPED else b"%%%02X" % byte for byte in range(256)]
_ESCAPED: Final = re.compile(rb"%([0-9A-F]{2})")
#: matches every channel
EVERYTHING: Final = b"*"
#: patterns subscribed to on the bus before everything is subscribed to: a quarter of bus.max_subscriptions; and the
#: places of their wildcards: three quarters of bus.user.wildcards
MAX_PATTERNS: Final = 1024
MAX_WILDCARDS: Final = 18

#: whether to subscribe (else to unsubscribe), and the pattern
Change = tuple[bool, bytes]


def channel_of(topic: bytes) -> bytes:
    """Translate a topic, or a pattern for topics, to a channel."""
    if topic.translate(None, _UNESCAPED):
        topic = b"".join([_ESCAPES[byte] for byte in topic])
    return b"%21" + topic[1:] if topic.startswith(b"!") else topic


def topic_of(chan: bytes) -> bytes | None:
    """Translate a channel to a topic; None if that would be too long, empty or contain a NUL."""
    topic = chan
    if b"%" in chan:
        unescaped = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), chan)
        if channel_of(unescaped) == chan:
            topic = unescaped
    return topic if topic and len(topic) <= MAX_TOPIC and b"\0" not in topic else None


def patterns_of(topic: bytes) -> tuple[bytes, ...]:
    """Return the patterns to hold on the bus for a subscription: its channel, and if that differs also the topic as it
    is, for channels that stand for themselves."""
    chan = channel_of(topic)
    return (chan,) if chan == topic or topic.startswith(b"!") else (chan, topic)


class MergedSubscriptions:
    """The patterns to hold on the bus for all subscribers, each once. Beyond ``limit`` of them, or of ``wildcards``,
    there is one for everything instead, until there are half as many again."""

    def __init__(self, limit: int = MAX_PATTERNS, wildcards: int = MAX_WILDCARDS) -> None:
        self._limit = limit
        self._wildcards = wildcards
        self._charges = PatternCharges()
        self._uses: Counter[bytes] = Counter()
        self._subscribed: set[bytes] = set()
        self._everything = False

    def change(self, topics: Iterable[bytes], *, wanted: bool) -> list[Change]:
        """Add or remove a subscriber's topics; return what to change on the bus, so that no message is missed."""
        uses = self._uses
        for pattern in (pattern for topic in topics for pattern in patterns_of(topic)):
            if wanted and pattern not in uses:
                self._charges.add(compile_pattern(pattern, DIALECTS["broker"]))
            uses[pattern] += 1 if wanted else -1
            if not uses[pattern]:
                del uses[pattern]
                self._charges.remove(compile_pattern(pattern, DIALECTS["broker"]))
        part = 2 if self._everything else 1
        self._everything = len(uses) > self._limit // part or self._charges.wildcards > self._wildcards // part
        before, self._subscribed = self._subscribed, {EVERYTHING} if self._everything else set(uses)
        return [(True, one) for one in self._subscribed - before] + [(False, one) for one in before - self._subscribed]
