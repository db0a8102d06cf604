"""Counters of segments and of the bus, from the start of the process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bccnd.core.wire.verdicts import NAMES
from bccnd.native.buffers.counts import Counts

#: the largest valid count
MAX_COUNT: Final = 2**63 - 1


def read_count(value: object) -> int:
    """Read a count from another program; negative ones are 0. Raises ValueError for anything but a 64-bit integer."""
    if not isinstance(value, int) or not -MAX_COUNT <= value <= MAX_COUNT:
        raise ValueError("a count must be an integer of 64 bits")
    return max(0, value)


class NamedCounts:
    """Counts by name."""

    __slots__ = ("_counts",)

    def __init__(self, names: Iterable[str] = ()) -> None:
        """``names`` are those that count from the start; others are added when they first occur."""
        self._counts = dict.fromkeys(names, 0)

    def add(self, name: str, amount: int = 1) -> None:
        self._counts[name] = self._counts.get(name, 0) + amount

    def __getitem__(self, name: str) -> int:
        return self._counts.get(name, 0)

    def all(self) -> dict[str, int]:
        """Return the counts by name."""
        return dict(self._counts)


class SegmentCounters:
    """Counts of one segment or kind of link. ``reopened`` is how often its socket was opened anew."""

    __slots__ = ("_verdicts", "errors", "name", "reopened", "sent")

    def __init__(self, name: str) -> None:
        self.name = name
        self._verdicts = Counts(len(NAMES))
        self.sent = 0
        self.reopened = 0
        #: sends that failed, by the errno's name
        self.errors = NamedCounts()

    def judged(self, verdict: int, amount: int = 1) -> None:
        """Count datagrams with a verdict."""
        self._verdicts.add(verdict, amount)

    @property
    def verdicts(self) -> list[int]:
        """Datagrams by verdict, as numbered by verdicts.py."""
        found: list[int] = self._verdicts.values()
        return found

    @property
    def received(self) -> int:
        """Datagrams received: each has a verdict."""
        return sum(self.verdicts)


class GroupCounters:
    """Messages and bytes of payloads by channel group; groups are numbered in the order of their ``names``."""

    __slots__ = ("_bytes", "_messages", "names")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = tuple(names)
        self._messages = Counts(len(self.names))
        self._bytes = Counts(len(self.names))

    def count(self, group: int, size: int) -> None:
        """Count a message with a payload of so many bytes."""
        self._messages.add(group)
        self._bytes.add(group, size)

    def all(self) -> list[tuple[str, int, int]]:
        """Return each group with its messages and bytes."""
        return list(zip(self.names, self._messages.values(), self._bytes.values(), strict=True))

    def adopt(self, before: GroupCounters) -> None:
        """Continue the counts of groups that ``before`` had too."""
        earlier = {name: (messages, size) for name, messages, size in before.all()}
        for group, name in enumerate(self.names):
            messages, size = earlier.get(name, (0, 0))
            self._messages.add(group, messages)
            self._bytes.add(group, size)


class BusCounters:
    """Counts of the local bus: messages delivered and published, and control messages dropped because the client's
    queue was full."""

    __slots__ = ("control_dropped", "deliveries", "dropped", "ended", "errors", "held", "published", "refused")

    def __init__(self) -> None:
        self.deliveries = 0
        self.published = 0
        self.control_dropped = 0
        #: connections refused, clients disconnected by the daemon, publishers delayed
        self.refused = NamedCounts(REFUSE_REASONS)
        self.ended = NamedCounts(END_REASONS)
        self.held = NamedCounts(HOLD_REASONS)
        self.dropped = NamedCounts(DROP_REASONS)
        #: errors sent to clients as !/bccn/error, by those of `ERROR_REASONS` that occurred
        self.errors = NamedCounts()


#: why a message for a client was dropped
DROP_REASONS: Final = (
    "queue_messages", "queue_bytes", "user_queue_bytes", "not_queued", "too_big", "client_ended", "client_gone",
)  # fmt: skip
REFUSE_REASONS: Final = ("too_many_clients", "too_many_clients_of_user", "not_admitted", "bug")
END_REASONS: Final = ("slow", "pid_reused", "bug")
#: why a client's frame was refused, or its message was not broadcast
ERROR_REASONS: Final = (
    "empty", "unknown_verb", "no_payload", "frame_too_long",
    "not_permitted", "no_link", "pattern_too_long", "too_many_subscriptions", "too_many_wildcards", "not_subscribed",
    "reserved_key", "bad_channel", "bad_target", "not_perl_safe", "no_signing_key", "too_long", "send_failed",
    "unknown_control", "bad_tag", "unknown_dialect", "subscribed", "bad_report", "unknown_listing", "listing_dropped",
)  # fmt: skip
HOLD_REASONS: Final = ("rate", "slow_reader")
