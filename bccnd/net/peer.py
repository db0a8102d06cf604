"""Identifies the process at the other end of a local connection, by the kernel's peer credentials, and its end.

Credentials are those at the time of connecting. The program's name is read from /proc; it is discarded if the kernel
reports that the pid no longer belongs to the process that connected.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
from contextlib import suppress
from typing import Final, NamedTuple

from bccnd.core.wire.identity_format import token

#: from <asm-generic/socket.h>; the socket module does not name them
_SO_PEERGROUPS: Final = 59
_SO_PEERPIDFD: Final = 77
#: numbers of groups to ask for: enough for most processes, and the kernel's maximum (NGROUPS_MAX)
_GROUP_LISTS: Final = (ctypes.c_uint32 * 64, ctypes.c_uint32 * 65_536)
#: Python's getsockopt accepts no values of more than 1024 bytes
_LIBC: Final = ctypes.CDLL(None)
MAX_PROGRAM: Final = 64
UNKNOWN: Final = b"unknown"


class Peer(NamedTuple):
    """A process, as of its connecting.

    ``pid`` is 0 for a process outside of this pid namespace. ``started`` (ticks since boot) distinguishes processes
    that reuse a pid. If it is unknown it is 0, and ``program`` is `UNKNOWN`.
    """

    pid: int
    uid: int
    gid: int
    groups: frozenset[int]
    program: bytes
    started: int

    def __str__(self) -> str:
        return f"{self.program.decode('ascii')} (pid {self.pid}, uid {self.uid})"


class PeerIdentifier:
    """Identifies peers even if the process is out of descriptors: a spare one is reserved for reading /proc."""

    def __init__(self) -> None:
        # dup of an open descriptor cannot fail for lack of system-wide descriptors, unlike open.
        self._original = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._spare = os.dup(self._original)

    def identify(self, sock: socket.socket) -> Peer:
        """Return the peer of a connection."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        try:
            program, started = _program_of(credentials(sock)[0])
            if started and not _is_same_process(sock):
                program, started = UNKNOWN, 0
        finally:
            with suppress(OSError):  # another thread may have taken it: a configuration is being loaded
                self._spare = os.dup(self._original)
        return self.restore(sock, program, started)

    def restore(self, sock: socket.socket, program: bytes, started: int) -> Peer:
        """Return the peer of a connection that the previous daemon identified; its process may have ended."""
        pid, uid, gid = credentials(sock)
        return Peer(pid, uid, gid, _groups(sock) | {gid}, program, started)

    def close(self) -> None:
        for descriptor in (self._spare, self._original):
            if descriptor >= 0:
                os.close(descriptor)
        self._spare = self._original = -1


def credentials(sock: socket.socket) -> tuple[int, int, int]:
    """Return the peer's pid, uid and gid at the time of connecting."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, gid = struct.unpack("=iII", raw)
    return pid, uid, gid


def _groups(sock: socket.socket) -> frozenset[int]:
    """Return the peer's supplementary groups; none on kernels without SO_PEERGROUPS."""
    for numbers in _GROUP_LISTS:
        groups = numbers()
        size = ctypes.c_uint32(ctypes.sizeof(groups))
        if not _LIBC.getsockopt(sock.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, groups, ctypes.byref(size)):
            return frozenset(groups[: size.value // 4])
    return frozenset()


def _program_of(pid: int) -> tuple[bytes, int]:
    """Return the name of a process as a legal token, and its start time."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            name = file.read(64).rstrip(b"\n")
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name may contain spaces and brackets; field 3 follows its last bracket.
            started = int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return UNKNOWN, 0
    return token(name, MAX_PROGRAM), started


def _is_same_process(sock: socket.socket) -> bool:
    """Whether the peer's pid still belongs to the process that connected. True on kernels before 6.5."""
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
    except OSError as error:
        return error.errno == errno.ENOPROTOOPT
    pidfd = int.from_bytes(raw, sys.byteorder)
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's process: it exists
        return True
    finally:
        os.close(pidfd)
    return True


def is_shut_down(sock: socket.socket) -> bool:
    """Whether the peer will send no more and all that it sent has been read."""
    # In this order: once the end is there, all packets before it are.
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0)) and not int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def is_hung_up(sock: socket.socket) -> bool:
    """Whether the peer can read no more either."""
    poll = select.poll()
    poll.register(sock, 0)
    return bool(poll.poll(0))
