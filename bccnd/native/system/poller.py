"""epoll(7), with the descriptors that are ready kept here instead of returned; poller.pyx is its compiled twin."""

from __future__ import annotations

import select


class Poller:
    """An epoll instance and the result of its last `wait`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ready: list[tuple[int, int]] = []

    def register(self, fd: int, events: int) -> None:
        """Raises OSError, as do `modify` and `unregister`."""
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Forget a descriptor; its events of the last `wait` become 0."""
        self._epoll.unregister(fd)
        self._ready = [(ready, 0 if ready == fd else events) for ready, events in self._ready]

    def wait(self, seconds: float) -> int:
        """Wait until a descriptor is ready, a signal arrives or the seconds have passed (negative: never).

        Returns how many descriptors are ready.
        """
        self._ready = self._epoll.poll(seconds)
        return len(self._ready)

    def fd(self, number: int) -> int:
        """Return one of the ready descriptors, from 0."""
        return self._ready[number][0]

    def events(self, number: int) -> int:
        """Return the events of a ready descriptor."""
        return self._ready[number][1]

    def close(self) -> None:
        self._epoll.close()
