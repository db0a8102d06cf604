"""Who is known to the broker: ids, what each has subscribed to, and which are connected.

Law: an id has one live connection at most, and its subscriptions are kept when that ends; only age and room forget
them, the longest absent first, and never one that is connected. Times are seconds of the wall clock, told by the
caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Record(NamedTuple):
    """What is kept of an id; ``seen`` is when it was last connected."""

    name: bytes
    seen: float
    topics: tuple[bytes, ...]


class Sessions:
    """Ids and their subscriptions. Without ``expire`` (0) none is forgotten for its age."""

    def __init__(self, max_ids: int, max_subscriptions: int, expire: float) -> None:
        self._max_ids = max_ids
        self._max_subscriptions = max_subscriptions
        self._expire = expire
        #: ids that were forgotten for their age and for want of room, and topics for which there was none
        self.expired = self.evicted = self.left_out = 0
        #: the topics of those who are connected; and of the absent, the longest absent first, with when they went
        self._present: dict[bytes, dict[bytes, None]] = {}
        self._absent: dict[bytes, tuple[float, dict[bytes, None]]] = {}

    def __len__(self) -> int:
        return len(self._present) + len(self._absent)

    def connect(self, name: bytes, now: float) -> str:
        """An id has come; empty, or why it is refused: duplicate_id, too_many_ids."""
        self.forget(now)
        if name in self._present:
            return "duplicate_id"
        kept = self._absent.pop(name, None)
        if kept is None and len(self) >= self._max_ids:
            if not self._absent:
                return "too_many_ids"
            del self._absent[next(iter(self._absent))]
            self.evicted += 1
        self._present[name] = {} if kept is None else kept[1]
        return ""

    def disconnect(self, name: bytes, now: float) -> None:
        """It has gone. One that has subscribed to nothing leaves nothing to keep."""
        topics = self._present.pop(name)
        if topics:
            self._absent[name] = now, topics

    def topics(self, name: bytes) -> Iterable[bytes]:
        """What an id that is connected has subscribed to."""
        return self._present[name].keys()

    def subscribe(self, name: bytes, topic: bytes) -> bool | None:
        """Whether that is new to a connected id; None where it is one too many."""
        topics = self._present[name]
        if topic in topics:
            return False
        if len(topics) >= self._max_subscriptions:
            return None
        topics[topic] = None
        return True

    def unsubscribe(self, name: bytes, topic: bytes) -> bool:
        """Whether a connected id had subscribed to it."""
        topics = self._present[name]
        if topic not in topics:
            return False
        del topics[topic]
        return True

    def forget(self, now: float) -> int:
        """Forget those who have been absent for too long; how many they were."""
        count = 0
        while self._expire and self._absent:
            name, (seen, _) = next(iter(self._absent.items()))
            if now - seen < self._expire:
                break
            del self._absent[name]
            count += 1
        self.expired += count
        return count

    # -- over restarts

    def records(self, now: float) -> list[Record]:
        """All that there is to keep, the longest absent first."""
        return [
            *(Record(name, seen, tuple(topics)) for name, (seen, topics) in self._absent.items()),
            *(Record(name, now, tuple(topics)) for name, topics in self._present.items() if topics),
        ]

    def restore(self, records: Iterable[Record], now: float) -> None:
        """Take up what was kept, before anybody has come: everybody is absent, and nobody since a time to come. What
        goes beyond the limits is left behind."""
        for record in self._latest(records):
            topics = dict.fromkeys(record.topics[: self._max_subscriptions])
            self.left_out += len(record.topics[self._max_subscriptions :])
            if topics:
                self._absent[record.name] = min(record.seen, now), topics

    def _latest(self, records: Iterable[Record]) -> Iterator[Record]:
        ordered = sorted(records, key=lambda record: record.seen)
        self.evicted += len(ordered[: -self._max_ids])
        yield from ordered[-self._max_ids :]
