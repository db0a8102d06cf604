"""What a batch of datagrams brings the clients, in order."""

from __future__ import annotations

#: receivers, and the one frame that each of them gets
Delivery = tuple[tuple[int, ...], bytes]


class Deliveries:
    """Collects the deliveries of a batch; it is used again for the next one.

    ``count`` is how many there are; ``receivers`` and ``frame`` are the first one, which is usually the only one and
    then needs no list.
    """

    __slots__ = ("_rest", "count", "frame", "receivers")

    def __init__(self) -> None:
        self._rest: list[Delivery] = []
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.receivers: tuple[int, ...] = ()
        self.frame = b""
        if self._rest:
            self._rest = []

    def put(self, receivers: tuple[int, ...], frame: bytes) -> None:
        if self.count:
            self._rest.append((receivers, frame))
        else:
            self.receivers, self.frame = receivers, frame
        self.count += 1

    def take(self) -> list[Delivery]:
        """Return all and clear."""
        taken = [(self.receivers, self.frame), *self._rest] if self.count else []
        self.clear()
        return taken
