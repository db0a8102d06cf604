"""Counters of segments and of the bus, in the memory that may outlive the process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bccnd.core.wire.verdicts import NAMES
from bccnd.native.memory.private_memory import private_memory
from bccnd.native.memory.slots import SlotMemory

#: the largest valid count
MAX_COUNT: Final = 2**63 - 1


def read_count(value: object) -> int:
    """Read a count from another program; negative ones are 0. Raises ValueError for anything but a 64-bit integer."""
    if not isinstance(value, int) or not -MAX_COUNT <= value <= MAX_COUNT:
        raise ValueError("a count must be an integer of 64 bits")
    return max(0, value)


class NamedCounts:
    """Counts by name. They go on in the next daemon if the memory outlives this one."""

    __slots__ = ("_cells", "_group", "_memory")

    def __init__(self, memory: SlotMemory, group: str, names: Iterable[str] = ()) -> None:
        """``group`` tells these from other counters; ``names`` are those that count from the start, others are added
        when they first occur."""
        self._memory = memory
        self._group = group + "/"
        known = (label[len(self._group) :] for label in memory.labels(self._group))
        self._cells = {name: memory.counter(self._group + name) for name in dict.fromkeys((*names, *known))}

    def add(self, name: str, amount: int = 1) -> None:
        cell = self._cells.get(name, -1)
        if cell < 0:
            cell = self._cells[name] = self._memory.counter(self._group + name)
        self._memory.add(cell, amount)

    def __getitem__(self, name: str) -> int:
        cell = self._cells.get(name, -1)
        return self._memory.value(cell) if cell >= 0 else 0

    def all(self) -> dict[str, int]:
        """Return the counts by name."""
        return {name: self._memory.value(cell) for name, cell in self._cells.items()}


class SegmentCounters:
    """Counts of one segment or kind of link."""

    __slots__ = ("_memory", "_numbers", "_verdicts", "errors", "name")

    def __init__(self, name: str, memory: SlotMemory | None = None) -> None:
        memory = private_memory(1) if memory is None else memory
        self.name = name
        self._memory = memory
        self._verdicts = [memory.counter(f"verdict/{name}/{one}") for one in NAMES]
        self._numbers = NamedCounts(memory, f"segment/{name}", ("sent", "reopened"))
        #: sends that failed, by the errno's name
        self.errors = NamedCounts(memory, f"errno/{name}")

    def judged(self, verdict: int, amount: int = 1) -> None:
        """Count datagrams with a verdict."""
        self._memory.add(self._verdicts[verdict], amount)

    def count_sent(self) -> None:
        self._numbers.add("sent")

    def count_reopened(self) -> None:
        self._numbers.add("reopened")

    @property
    def verdicts(self) -> list[int]:
        """Datagrams by verdict, as numbered by verdicts.py."""
        return [self._memory.value(cell) for cell in self._verdicts]

    @property
    def received(self) -> int:
        """Datagrams received: each has a verdict."""
        return sum(self.verdicts)

    @property
    def sent(self) -> int:
        return self._numbers["sent"]

    @property
    def reopened(self) -> int:
        """How often its socket was opened anew."""
        return self._numbers["reopened"]


class GroupCounters:
    """Messages and bytes of payloads by channel group; groups are numbered in the order of their ``names``."""

    __slots__ = ("_cells", "_memory", "names")

    def __init__(self, names: Iterable[str] = (), memory: SlotMemory | None = None) -> None:
        memory = private_memory(1) if memory is None else memory
        self.names = tuple(names)
        self._memory = memory
        self._cells = [
            (memory.counter(f"group/{name}/messages"), memory.counter(f"group/{name}/bytes")) for name in self.names
        ]

    def count(self, group: int, size: int) -> None:
        """Count a message with a payload of so many bytes."""
        messages, payload = self._cells[group]
        self._memory.add(messages)
        self._memory.add(payload, size)

    def all(self) -> list[tuple[str, int, int]]:
        """Return each group with its messages and bytes."""
        memory = self._memory
        return [
            (name, memory.value(one), memory.value(two))
            for name, (one, two) in zip(self.names, self._cells, strict=True)
        ]


class BusCounters:
    """Counts of the local bus."""

    __slots__ = ("_numbers", "dropped", "ended", "errors", "held", "refused")

    def __init__(self, memory: SlotMemory | None = None) -> None:
        memory = private_memory(1) if memory is None else memory
        #: messages delivered and published, and control messages dropped because the client's queue was full
        self._numbers = NamedCounts(memory, "bus", ("deliveries", "published", "untold"))
        #: connections refused, clients disconnected by the daemon, publishers delayed
        self.refused = NamedCounts(memory, "refused", REFUSE_REASONS)
        self.ended = NamedCounts(memory, "ended", END_REASONS)
        self.held = NamedCounts(memory, "held", HOLD_REASONS)
        self.dropped = NamedCounts(memory, "dropped", DROP_REASONS)
        #: errors sent to clients as !/bccn/error, by those of `ERROR_REASONS` that occurred
        self.errors = NamedCounts(memory, "errors")

    def delivered(self, messages: int) -> None:
        self._numbers.add("deliveries", messages)

    def count_published(self) -> None:
        self._numbers.add("published")

    def count_untold(self) -> None:
        self._numbers.add("untold")

    @property
    def deliveries(self) -> int:
        return self._numbers["deliveries"]

    @property
    def published(self) -> int:
        return self._numbers["published"]

    @property
    def untold(self) -> int:
        return self._numbers["untold"]


#: why a message for a client was dropped
DROP_REASONS: Final = (
    "queue_messages", "queue_bytes", "user_queue_bytes", "not_queued", "too_big", "client_ended", "client_gone",
    "match_limit",
)  # fmt: skip
REFUSE_REASONS: Final = ("too_many_clients", "too_many_clients_of_user", "not_admitted", "bug")
END_REASONS: Final = ("slow", "pid_reused", "bug")
#: why a client's frame was refused, or its message was not broadcast
ERROR_REASONS: Final = (
    "empty", "unknown_verb", "no_payload", "frame_too_long",
    "not_permitted", "no_link", "pattern_too_long", "too_many_subscriptions", "not_subscribed",
    "reserved_key", "bad_channel", "bad_target", "not_perl_safe", "no_signing_key", "too_long", "send_failed",
    "unknown_control", "bad_tag", "unknown_dialect", "subscribed", "bad_report", "unknown_listing", "listing_dropped",
)  # fmt: skip
HOLD_REASONS: Final = ("rate", "slow_reader")
