"""A descriptor that stays the same while the sockets behind it come and go."""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import Final

_CLOCK_MONOTONIC: Final = 1


class PollableDescriptor:
    """A descriptor that can be waited for while sockets come and go: an epoll, which is readable when one of those is
    that it watches: the present socket, a timer, and an event that is always set, for as long as it is watched."""

    def __init__(self) -> None:
        # Python has these timers since 3.13. ctypes is loaded only for programs that ask for a descriptor.
        import ctypes

        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        # Watching this or not takes a twentieth of the time of setting a timer.
        self._always = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._timer, select.EPOLLIN)
        self._epoll.register(self._always, 0)
        self._sock: socket.socket | None = None
        self._events = 0
        self._set = False
        self._now = False

    def fileno(self) -> int:
        return self._epoll.fileno()

    def show(self, sock: socket.socket | None, writes: bool, wait: float | None) -> None:
        """Be readable when ``sock`` is (or may be written to, if ``writes``), or after ``wait`` seconds."""
        events = select.EPOLLIN | (select.EPOLLOUT if writes else 0)
        if sock is not self._sock:
            if self._sock is not None and self._sock.fileno() >= 0:
                self._epoll.unregister(self._sock)
            if sock is not None:
                self._epoll.register(sock, events)
        elif sock is not None and events != self._events:
            self._epoll.modify(sock, events)
        self._sock, self._events = sock, events
        now = wait is not None and wait <= 0
        if now != self._now:
            self._epoll.modify(self._always, select.EPOLLIN if now else 0)
            self._now = now
        if wait or self._set:
            nanoseconds = max(1, int(wait * 1e9)) if wait else 0  # which is never
            self._libc.timerfd_settime(
                self._timer, 0, struct.pack("@4l", 0, 0, *divmod(nanoseconds, 1_000_000_000)), None
            )
            self._set = bool(wait)

    def close(self) -> None:
        self._epoll.close()
        os.close(self._timer)
        os.close(self._always)
