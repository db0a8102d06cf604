"""Keeps the ids that the broker knows, with their subscriptions, in memory.

Invariant: an id has at most one connection; its subscriptions outlive that. Only age and the limit of ids remove them,
the longest absent first, never those of a connected id. Times are seconds since the boot (`boot_clock`), passed by the
caller: no clock that is set makes an id old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Record(NamedTuple):
    """What is stored of an id, nothing if it has no topics; ``seen`` is when it left, None while it is connected."""

    name: bytes
    seen: float | None
    topics: tuple[bytes, ...]


class Sessions:
    """``max_age`` of 0 keeps absent ids for ever. ``drop`` counts what is forgotten, by reason; ``on_change`` is called
    when an id is added to `changed`."""

    def __init__(self, max_ids: int, max_subscriptions: int, max_age: float, drop: Callable[[str], None]) -> None:
        self._max_ids = max_ids
        self._max_subscriptions = max_subscriptions
        self._max_age = max_age
        self._drop = drop
        #: ids to be stored
        self.changed: set[bytes] = set()
        self.on_change: Callable[[], None] = lambda: None
        #: topics of the connected ids; and of the absent ones, the longest absent first, with the time they left
        self._connected: dict[bytes, dict[bytes, None]] = {}
        self._absent: dict[bytes, tuple[float, dict[bytes, None]]] = {}

    def connect(self, name: bytes, now: float) -> str:
        """Admit an id; return the reason if it is refused: duplicate_id, too_many_ids."""
        self.expire(now)
        if name in self._connected:
            return "duplicate_id"
        _, topics = self._absent.pop(name, (now, {}))
        if len(self._connected) + len(self._absent) >= self._max_ids:
            if not self._absent:
                return "too_many_ids"
            self._forget("id_evicted")
        self._connected[name] = topics
        self._change(name)
        return ""

    def disconnect(self, name: bytes, now: float) -> None:
        topics = self._connected.pop(name)
        if topics:
            self._absent[name] = now, topics
        self._change(name)

    def topics(self, name: bytes) -> Iterable[bytes]:
        """Return the subscriptions of a connected id."""
        return self._connected[name].keys()

    def subscribe(self, name: bytes, topic: bytes) -> bool:
        """Return whether a connected id has a new subscription now."""
        topics = self._connected[name]
        if topic in topics:
            return False
        if len(topics) >= self._max_subscriptions:
            self._drop("too_many_subscriptions")
            return False
        topics[topic] = None
        self._change(name)
        return True

    def unsubscribe(self, name: bytes, topic: bytes) -> bool:
        """Return whether a connected id had that subscription."""
        if topic not in self._connected[name]:
            return False
        del self._connected[name][topic]
        self._change(name)
        return True

    def expire(self, now: float) -> None:
        """Forget ids that have been absent for too long."""
        while self._max_age and self._absent and now - next(iter(self._absent.values()))[0] >= self._max_age:
            self._forget("id_expired")

    def _forget(self, reason: str) -> None:
        name = next(iter(self._absent))
        del self._absent[name]
        self._drop(reason)
        self._change(name)

    def _change(self, name: bytes) -> None:
        self.changed.add(name)
        self.on_change()

    def record(self, name: bytes) -> Record:
        if name in self._connected:
            return Record(name, None, tuple(self._connected[name]))
        seen, topics = self._absent.get(name, (None, ()))
        return Record(name, seen, tuple(topics))

    def restore(self, records: Iterable[Record], now: float) -> None:
        """Restore what was stored, within the limits. Ids that were connected then, or left in the future, left now."""
        for name, seen, topics in sorted(records, key=lambda one: now if one.seen is None else one.seen):
            for _ in topics[self._max_subscriptions :]:
                self._drop("too_many_subscriptions")
            allowed = dict.fromkeys(topics[: self._max_subscriptions])
            self._absent[name] = now if seen is None else min(seen, now), allowed
            if seen is None or len(allowed) < len(topics):
                self._change(name)
        while len(self._absent) > self._max_ids:
            self._forget("id_evicted")
