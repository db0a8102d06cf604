"""Keeps state of this daemon in systemd's descriptor store: connections with a small record each, a record of the host,
and after a clean stop the image of all else.

Invariant: no message changes a record. After a crash the next daemon finds the connections with their identity,
subscriptions and modes, and numbers that this one cannot have used. Source: sd_notify(3), "FDSTORE=1".
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import socket
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from bccnd import log
from bccnd.core.formats.image_sections import Section
from bccnd.errors import StartError
from bccnd.handover.image import BadImage, ImageWriter, read_image, take_back_reading, write_all, write_image

#: a connection and its record, by the client's number
_CLIENT: Final = "client-"
_HOST: Final = "host"
_IMAGE: Final = "image"
#: trackers that are written while the daemon runs, in turn
TRACKERS: Final = ("trackers-a", "trackers-b")
_STORED: Final = re.compile(f"{_HOST}|{_IMAGE}|{TRACKERS[0]}|{TRACKERS[1]}|{_CLIENT}([0-9]{{1,18}})")

_HOST_RECORD: Final = struct.Struct("<8sQQ")
_HOST_MAGIC: Final = b"bccnhst\n"
#: how the record of a client begins: with where in the file it is
CLIENT_HEAD: Final = struct.Struct("<8sQ")
CLIENT_MAGIC: Final = b"bccncli\n"
_LENGTH: Final = struct.Struct("<I")
_PUNCH_HOLE: Final = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
#: bytes from which on a client's record is written anew
_WORTH: Final = 1 << 18

_libc: Final = ctypes.CDLL(None)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def is_stored(name: str) -> bool:
    """Whether a passed descriptor of this name was stored by a daemon before this one."""
    return _STORED.fullmatch(name) is not None


class Store(Protocol):
    """The descriptor store: see `net.service_manager`."""

    def store(self, name: str, *descriptors: int) -> bool: ...
    def forget(self, name: str) -> None: ...


class Storable(Protocol):
    """The stored attributes of a client."""

    number: int
    fd: int
    record: ClientRecord | None


class ClientRecord:
    """The record of a client: its head, then the frames that led to its state. ``grown`` is called when it is worth
    writing it anew, ``failed`` when there is no memory for more.

    Invariant: an incomplete frame at the end is ignored; `replace` is atomic, as one number says where a record begins,
    and it ends before another head.
    """

    def __init__(self, fd: int) -> None:
        """Take over ``fd``: an empty file, or one that another `ClientRecord` has written. Raises OSError."""
        self.fd = fd
        self.grown: Callable[[], None] = _ignore
        self.failed: Callable[[OSError], None] = _ignore
        raw = os.pread(fd, CLIENT_HEAD.size, 0)
        magic, start = CLIENT_HEAD.unpack(raw) if len(raw) == CLIENT_HEAD.size else (b"", 0)
        if magic != CLIENT_MAGIC or start > os.fstat(fd).st_size:
            start = CLIENT_HEAD.size
            os.ftruncate(fd, 0)
            os.pwrite(fd, CLIENT_HEAD.pack(CLIENT_MAGIC, start), 0)
        self._start = start
        self._end = max(start, os.fstat(fd).st_size)
        self._limit = _WORTH

    def read(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the head and the frames; an empty head if there is none. Cuts off an incomplete frame, and a record
        that was to replace this one."""
        data = os.pread(self.fd, self._end - self._start, self._start)
        found: list[bytes] = []
        at = 0
        while at + _LENGTH.size <= len(data):
            end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            line = data[at + _LENGTH.size : end]
            if end > len(data) or (found and line.startswith(b"{")):
                break
            found.append(line)
            at = end
        self._end = self._start + at
        os.ftruncate(self.fd, self._end)
        try:
            head = json.loads(found[0]) if found else {}
        except ValueError:
            head = {}
        return (head if isinstance(head, dict) else {}), found[1:]

    def append(self, frame: bytes) -> None:
        """Append a frame that has changed subscriptions, modes or identity."""
        try:
            self._write(_LENGTH.pack(len(frame)) + frame)
        except OSError as error:
            self.failed(error)
            return
        if self._end - self._start > self._limit:
            self._limit *= 2  # reported once, even if it is not written anew
            self.grown()

    def replace(self, head: dict[str, Any], frames: Iterable[bytes]) -> None:
        """Write the record anew. Raises OSError."""
        before, begin = self._start, self._end
        lines = [json.dumps(head).encode("ascii"), *frames]
        self._write(b"".join(_LENGTH.pack(len(line)) + line for line in lines))
        self._start = begin
        os.pwrite(self.fd, CLIENT_HEAD.pack(CLIENT_MAGIC, begin), 0)
        self._limit = max(_WORTH, 3 * (self._end - begin))
        # The page in which the old record began is freed too, unless it holds the head.
        first, last = max(4096, before // 4096 * 4096), begin // 4096 * 4096
        if last > first:
            _libc.fallocate(self.fd, _PUNCH_HOLE, first, last - first)

    def _write(self, data: bytes) -> None:
        """Write behind the end: all, or nothing that a reader would see. Raises OSError."""
        try:
            write_all(self.fd, data, self._end)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, self._end)
            raise
        self._end += len(data)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        # The other functions may refer to this record: a cycle that would live on in frozen memory.
        self.grown = self.failed = _ignore
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _ignore(*_arguments: object) -> None:
    """Do nothing."""


@dataclass
class StoredClient:
    """A client of the previous daemon: its connection, and the head and frames of its record."""

    number: int
    sock: socket.socket
    record: ClientRecord
    head: dict[str, Any]
    frames: list[bytes]


class DescriptorStore:
    """Stores clients and the image in ``store``; reads what ``passed`` (names and descriptors) has of the previous
    daemon.

    ``clients`` are the stored clients. ``dropped`` lists descriptors and records that were not understood.
    """

    def __init__(self, store: Store, passed: Iterable[tuple[str, int]]) -> None:
        self._store = store
        self.dropped: list[str] = []
        self.clients: list[StoredClient] = []
        #: returns the head and the frames of a client's record
        self.describe: Callable[[Any], tuple[dict[str, Any], list[bytes]]] = lambda _client: ({}, [])
        #: clients that could not be stored, and failed attempts to write trackers or the record of the host
        self.not_stored = self.failed_writes = 0
        self._kept: dict[int, Storable] = {}
        self._host = -1
        self._unstored_host = False
        self._images: list[int] = []
        self._trackers: dict[str, int] = {}
        self._turn = 0
        pairs: dict[int, list[int]] = {}
        for name, fd in passed:
            found = _STORED.fullmatch(name)
            if found is not None and found[1] is not None:
                pairs.setdefault(int(found[1]), []).append(fd)
            elif name == _HOST and self._host < 0:
                self._host = fd
            elif name == _IMAGE:
                self._images.append(fd)
            elif name in TRACKERS and name not in self._trackers:
                self._trackers[name] = fd
            else:
                self._drop(f"a descriptor called {name!r}", name, fd)
        #: whether there was a daemon before this one
        self.found_any = self._host >= 0 or bool(pairs)
        self._open_host()
        for number in sorted(pairs):
            self._open_client(number, pairs[number])

    def _drop(self, what: str, name: str, *fds: int) -> None:
        self.dropped.append(what)
        for fd in fds:
            os.close(fd)
        self._store.forget(name)

    # -- the host

    def _open_host(self) -> None:
        """Read the record of the host. Raises OSError."""
        raw = os.pread(self._host, _HOST_RECORD.size, 0) if self._host >= 0 else b""
        magic, ceiling, number = _HOST_RECORD.unpack(raw) if len(raw) == _HOST_RECORD.size else (b"", 0, 0)
        known = magic == _HOST_MAGIC
        #: the number below which all numbers are that this host has used so far
        self.ceiling = ceiling if known else 0
        #: the highest number that a client has had so far
        self.last_number = number if known else 0
        if self._host < 0:
            self._host = os.memfd_create(_HOST, os.MFD_CLOEXEC)
            self._unstored_host = True
            self._write_host()
            self._store_host()

    def _write_host(self) -> None:
        """Write the record of the host. If that fails, numbers are used nevertheless."""
        try:
            os.pwrite(self._host, _HOST_RECORD.pack(_HOST_MAGIC, self.ceiling, self.last_number), 0)
        except OSError as error:
            self.failed_writes += 1
            log.event(
                "not_kept",
                f"the numbers of this host's messages cannot be recorded: {error.strerror}; after a crash with a clock "
                "that was set back, other hosts may drop its messages as duplicates",
                about="numbers",
                remedy="raise MemoryMax= of the service",
                error=error.strerror or "",
                drop="sources_not_kept",
            )

    def _store_host(self) -> bool:
        """Store the record of the host unless that was done; False if the store refuses it."""
        if self._unstored_host and self._store.store(_HOST, self._host):
            self._unstored_host = False
        return not self._unstored_host

    def raise_ceiling(self, ceiling: int) -> None:
        """Record that numbers below ``ceiling`` may be used; a client that continues may be far below it."""
        self.ceiling = max(self.ceiling, ceiling)
        self._write_host()

    # -- clients

    def _open_client(self, number: int, fds: list[int]) -> None:
        """Read a stored client; drop it if too little of it is there."""
        name = f"{_CLIENT}{number}"
        files = [fd for fd in fds if not stat.S_ISSOCK(os.fstat(fd).st_mode)]
        sockets = [fd for fd in fds if fd not in files and _is_connection(fd)]
        if len(sockets) != 1 or len(files) != 1 or len(fds) != 2:
            self._drop(f"half of connection {number}", name, *fds)
            return
        try:
            record = ClientRecord(files[0])
            head, frames = record.read()
        except OSError as error:
            self._drop(f"connection {number}: its record is no file of this program ({error.strerror})", name, *fds)
            return
        if not head:
            self._drop(f"connection {number}: its record is empty", name, *fds)
            return
        sock = socket.socket(fileno=sockets[0])
        sock.setblocking(False)
        self.last_number = max(self.last_number, number)
        self.clients.append(StoredClient(number, sock, record, head, frames))

    def keep(self, client: Storable) -> None:
        """Store a client, so that its connection outlives this process."""
        fd = -1
        try:
            fd = os.memfd_create(f"{_CLIENT}{client.number}", os.MFD_CLOEXEC)
            record = ClientRecord(fd)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            self._not_kept(error)
            return
        self.last_number = max(self.last_number, client.number)
        self._write_host()
        if not self.begin(client, record):
            return
        # Without the record of the host numbers could be used twice.
        if not (self._store_host() and self._store.store(f"{_CLIENT}{client.number}", client.fd, fd)):
            self.forget(client)
            self._not_kept(OSError(0, "systemd does not accept its connection"))

    def begin(self, client: Storable, record: ClientRecord) -> bool:
        """Record a client from now on; False if that is not possible."""
        client.record = record
        self._kept[client.number] = client
        self.rewrite(client)
        record.grown, record.failed = partial(self.rewrite, client), partial(self._give_up, client)
        return client.record is not None

    def rewrite(self, client: Storable) -> None:
        """Write the record of a client anew."""
        record = client.record
        if record is not None:
            try:
                record.replace(*self.describe(client))
            except OSError as error:
                self._give_up(client, error)

    def _give_up(self, client: Storable, error: OSError) -> None:
        self.forget(client)
        self._not_kept(error)

    def _not_kept(self, error: OSError) -> None:
        self.not_stored += 1
        log.event(
            "not_kept",
            f"the connection of a client will not survive a restart of this daemon: {error.strerror}",
            about="client",
            remedy="raise FileDescriptorStoreMax=, LimitNOFILE= or MemoryMax= of the service",
            error=error.strerror or "",
            drop="clients_not_kept",
        )

    def forget(self, client: Storable) -> None:
        """Remove a client that has gone, or that cannot be stored any more."""
        if self._kept.pop(client.number, None) is not None and client.record is not None:
            self._store.forget(f"{_CLIENT}{client.number}")
            client.record.close()
            client.record = None

    def refuse(self, stored: StoredClient, why: str) -> None:
        """Drop a stored client that cannot be served."""
        self.dropped.append(f"connection {stored.number}: {why}")
        stored.sock.close()
        stored.record.close()
        self._store.forget(f"{_CLIENT}{stored.number}")

    # -- the image, and trackers that are written while the daemon runs

    def read_image(self) -> Iterator[Section]:
        """Return the sections of the image. Raises BadImage."""
        if len(self._images) != 1:
            raise BadImage("several images" if self._images else "no image")
        return read_image(self._images[0])

    def read_trackers(self) -> Iterator[Section]:
        """Return the newest complete trackers that were written while the daemon before ran; none if there are none."""
        newest: tuple[float, list[Section]] = 0.0, []
        for fd in self._trackers.values():
            with contextlib.suppress(BadImage):
                sections = list(read_image(fd))
                written = float(sections[0].fields.get("written", 0.0)) if sections else 0.0
                newest = max(newest, (written, sections), key=lambda one: one[0])
        return iter(newest[1])

    def discard_images(self) -> None:
        """Remove the images that were read, so that no later daemon reads them; call it when this one can serve."""
        for fd in self._images:
            os.ftruncate(fd, 0)  # at once, whenever the store follows
        for name, fds in ((_IMAGE, self._images), *((name, [fd]) for name, fd in self._trackers.items())):
            for fd in fds:
                os.close(fd)
            if fds:
                self._store.forget(name)
        self._images.clear()
        self._trackers.clear()

    def write_image(self, sections: Iterable[Section]) -> bool:
        """Store the image; False, and an event, if that was not possible."""
        error = "systemd does not accept it"
        try:
            fd = os.memfd_create(_IMAGE, os.MFD_CLOEXEC)
            try:
                write_image(fd, sections)
                if self._store_host() and self._store.store(_IMAGE, fd):
                    return True
            finally:
                os.close(fd)
        except OSError as failed:
            error = failed.strerror or str(failed)
        log.event(
            "not_kept",
            f"the state of this daemon will not survive its restart: {error}; messages that wait for clients are lost",
            about="image",
            remedy="raise FileDescriptorStoreMax= or MemoryMax= of the service",
            error=error,
            drop="crashes",
        )
        return False

    def write_trackers(self, sections: Iterable[Section]) -> Iterator[None]:
        """Store trackers in steps, one section each: the ones before stay until these are complete."""
        before, self._turn = TRACKERS[self._turn], 1 - self._turn
        fd = os.memfd_create(TRACKERS[self._turn], os.MFD_CLOEXEC)
        try:
            writer = ImageWriter(fd)
            for section in sections:
                writer.add(section)
                yield
            writer.finish()
            if self._store.store(TRACKERS[self._turn], fd):
                self._store.forget(before)
        finally:
            os.close(fd)

    def __enter__(self) -> DescriptorStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        # Where a start is refused, the image is not to blame.
        if kind is not None and issubclass(kind, StartError) and len(self._images) == 1:
            take_back_reading(self._images[0])
        self.close()

    def close(self) -> None:
        """Close all descriptors of this process that are not those of connections."""
        for fd in (self._host, *self._images, *self._trackers.values()):
            os.close(fd)
        for client in self._kept.values():
            if client.record is not None:
                client.record.close()
        for stored in self.clients:
            stored.sock.close()
            stored.record.close()


def _is_connection(fd: int) -> bool:
    """Whether a socket is connected to a client of the bus."""
    from systemd.daemon import is_socket  # it is there where anything was stored

    return bool(is_socket(fd, socket.AF_UNIX, socket.SOCK_SEQPACKET, listening=0))
