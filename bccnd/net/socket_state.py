"""Queries the kernel for the state of a connected socket's peer."""

from __future__ import annotations

import fcntl
import select
import socket
import sys
import termios


def is_shut_down(sock: socket.socket) -> bool:
    """Whether the peer will send no more and all that it sent has been read."""
    # In this order: what came before the end is there once the end is.
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0)) and not int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def is_hung_up(sock: socket.socket) -> bool:
    """Whether the peer can read no more either."""
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))
