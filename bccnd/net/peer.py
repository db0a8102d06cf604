"""Who is at the other end of a local connection.

Law: only the kernel is asked. What it says about the process holds for the moment of connecting; the program's name
is what that process itself goes by, and is read only while the kernel vouches that the pid is still the same process's.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import struct
import sys
from typing import Final, NamedTuple

from bccnd.core.identity import token

#: not in Python's socket module yet
_SO_PEERGROUPS: Final = 59
_SO_PEERPIDFD: Final = 77
#: room for the groups of nearly everybody, and for more than which the kernel lets nobody be in
_GROUPS: Final = (64, 65_536)
#: Python's own getsockopt takes no answer of more than 1024 bytes
_LIBC: Final = ctypes.CDLL(None)
MAX_PROGRAM: Final = 64
UNKNOWN: Final = b"unknown"


class Peer(NamedTuple):
    """A process as the kernel saw it connect. ``pid`` is 0 for one outside of our pid namespace; ``started`` (ticks
    since boot) tells two processes with one pid apart and is 0 where it cannot be known, as then is ``program``."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int]
    program: bytes
    started: int

    def __str__(self) -> str:
        return f"{self.program.decode('ascii')} (pid {self.pid}, uid {self.uid})"


class PeerIdentifier:
    """Says who has connected, also where the process has run out of descriptors: one is kept for that."""

    def __init__(self) -> None:
        # A copy of one that we have can always be had again; one that is opened anew might not.
        self._original = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._spare = os.dup(self._original)

    def identify(self, sock: socket.socket) -> Peer:
        pid, uid, gid = credentials(sock)
        os.close(self._spare)
        try:
            program, started = _program_of(pid)
            if started and not _still_there(sock):
                program, started = UNKNOWN, 0
        finally:
            self._spare = os.dup(self._original)
        return Peer(pid, uid, gid, _groups(sock) | {gid}, program, started)

    def recall(self, sock: socket.socket, program: bytes, started: int) -> Peer:
        """Who had connected, as somebody found it out then who has left us a note of it: the process may be gone."""
        pid, uid, gid = credentials(sock)
        return Peer(pid, uid, gid, _groups(sock) | {gid}, program, started)

    def close(self) -> None:
        for descriptor in (self._spare, self._original):
            if descriptor >= 0:
                os.close(descriptor)
        self._spare = self._original = -1


def credentials(sock: socket.socket) -> tuple[int, int, int]:
    """The pid, uid and gid of the process at the other end, as the kernel noted them when it connected."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, gid = struct.unpack("=iII", raw)
    return pid, uid, gid


def _groups(sock: socket.socket) -> frozenset[int]:
    """The supplementary groups; none on a kernel that does not tell."""
    for room in _GROUPS:
        groups = (ctypes.c_uint32 * room)()
        size = ctypes.c_uint32(ctypes.sizeof(groups))
        if not _LIBC.getsockopt(sock.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, groups, ctypes.byref(size)):
            return frozenset(groups[: size.value // 4])
    return frozenset()


def _program_of(pid: int) -> tuple[bytes, int]:
    """The name of a process as a legal token, and when it started."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            name = file.read(64).rstrip(b"\n")
        with open(f"/proc/{pid}/stat", "rb") as file:
            # A name may hold blanks and brackets itself; what follows its last bracket is field 3 and on.
            started = int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return UNKNOWN, 0
    return token(name, MAX_PROGRAM), started


def _still_there(sock: socket.socket) -> bool:
    """Whether the pid of the peer has not been free since it connected. Kernels before 6.5 cannot tell; then yes."""
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
    except OSError as error:
        return error.errno == errno.ENOPROTOOPT
    pidfd = int.from_bytes(raw, sys.byteorder)
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's, and so there
        return True
    finally:
        os.close(pidfd)
    return True
