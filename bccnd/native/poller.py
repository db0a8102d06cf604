"""Which descriptors are ready: epoll(7)."""

from __future__ import annotations

import select


class Poller:
    """An epoll instance, and what it said last."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ready: list[tuple[int, int]] = []

    def register(self, fd: int, events: int) -> None:
        """Raises OSError, as do `modify` and `unregister`."""
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        self._epoll.unregister(fd)

    def wait(self, seconds: float) -> int:
        """How many descriptors are ready: at least one, or else so many seconds have passed, or a signal has come;
        forever where ``seconds`` is negative."""
        self._ready = self._epoll.poll(seconds)
        return len(self._ready)

    def fd(self, number: int) -> int:
        """One of those that were ready, from 0."""
        return self._ready[number][0]

    def events(self, number: int) -> int:
        """What it was ready for."""
        return self._ready[number][1]

    def close(self) -> None:
        self._epoll.close()
