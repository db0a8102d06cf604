"""What systemd holds for a simulated host: its socket units and its descriptor store."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.simulate import interposer

#: of the segment's socket: room for the longest backlog, and for a usual one
_RECEIVE_BUFFER: Final = 64 << 20
_LEAST_BUFFER: Final = 4 << 20
_SO_RCVBUFFORCE: Final = 33


@contextmanager
def _descriptors_of_its_own() -> Iterator[None]:
    """The service manager is another process: that the daemon has no descriptors left does not concern it."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def enlarge_receive_buffer(sock: socket.socket) -> None:
    """Make room for the longest backlog; an ordinary user gets what net.core.rmem_max allows."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)


def has_room() -> bool:
    """Whether a socket gets room for a usual backlog, so that the kernel drops nothing that the network delivers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        enlarge_receive_buffer(sock)
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= _LEAST_BUFFER


class SocketUnits:
    """The sockets that outlive the daemon: that of the bus and that of the segment."""

    def __init__(self, path: Path, port: int) -> None:
        self.bus = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.bus.bind(str(path))
        path.chmod(0o666)
        self.bus.listen(1024)
        self.segment = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.segment.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.segment.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        enlarge_receive_buffer(self.segment)
        self.segment.bind(("0.0.0.0", port))

    def passed(self) -> list[tuple[str, int]]:
        return [("bccnd.socket", os.dup(self.bus.fileno())), ("bccnd-segment.socket", os.dup(self.segment.fileno()))]

    def close(self) -> None:
        self.bus.close()
        self.segment.close()


class DescriptorStore:
    """The service manager as its daemon sees it; ``notify`` takes the place of its socket."""

    def __init__(self) -> None:
        self._kept: dict[str, list[int]] = {}
        #: whether a notification says that the daemon is ending
        self.stopping = False
        #: whether it answers at all, and whether it takes descriptors
        self.stalled = False
        self.refuses = False
        #: how often a descriptor was refused
        self.refused = 0
        #: whether it holds an image that no daemon has served from
        self.fresh = False

    def notify(self, message: str, fds: Sequence[int]) -> None:
        """Take a notification. Raises OSError as a socket that is full does."""
        if interposer.dead():
            return
        if self.stalled:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        words = dict(line.partition("=")[::2] for line in message.splitlines())
        name = words.get("FDNAME", "")
        if "FDSTORE" in words:
            if self.refuses:
                self.refused += 1
                raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
            held = self._kept.setdefault(name, [])
            with _descriptors_of_its_own():
                held += [os.dup(fd) for fd in fds if not any(os.path.sameopenfile(fd, one) for one in held)]
            self.fresh = self.fresh or name == "image"
        elif "FDSTOREREMOVE" in words:
            for fd in self._kept.pop(name, ()):
                os.close(fd)
        self.stopping = self.stopping or "STOPPING" in words

    def passed(self) -> list[tuple[str, int]]:
        """Return copies of what is stored, as the next daemon gets them."""
        return [(name, os.dup(fd)) for name, held in sorted(self._kept.items()) for fd in held]

    @property
    def has_image(self) -> bool:
        """Whether the next daemon has to continue from an image."""
        return self.fresh and any(os.fstat(fd).st_size for fd in self._kept.get("image", ()))

    def holds(self, name: str) -> int:
        """Return how many descriptors are stored under a name."""
        return len(self._kept.get(name, ()))

    def all(self) -> set[int]:
        """Return the stored descriptors."""
        return {fd for held in self._kept.values() for fd in held}

    def close(self) -> None:
        for held in self._kept.values():
            for fd in held:
                os.close(fd)
        self._kept.clear()
