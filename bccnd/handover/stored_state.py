"""State that outlives the daemon: files in memory and connections in systemd's descriptor store, and their restoration.

Invariant: whether the daemon is stopped, killed or aborted, the same descriptors are stored: each client's connection
with its log (`core.formats.client_log_format`), the input being processed (`native.memory.inflight_layout`), and the
memory of sources and counters (`native.memory.slot_layout`). What is not understood is dropped and reported. Source:
sd_notify(3), "FDSTORE=1".
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from bccnd import log
from bccnd.core.formats import client_log_format
from bccnd.handover.client_log import NOTHING, StoredClientLog
from bccnd.handover.memfd import File, create, map_whole
from bccnd.handover.stored_names import CLIENT, INFLIGHT, MEMORY, SOURCES, split_number
from bccnd.native.memory import inflight_layout as layout
from bccnd.native.memory import slot_layout
from bccnd.native.memory.inflight import InflightState
from bccnd.native.memory.slots import SlotMemory

#: replays of an input; one that kills the daemon each time is dropped then
MAX_TRIES: Final = 3
#: the largest memory of sources and counters that is taken over
MAX_MEMORY: Final = 1 << 36


class Store(Protocol):
    """The descriptor store: see `net.service_manager`."""

    def store(self, name: str, *descriptors: int) -> bool: ...
    def forget(self, name: str) -> None: ...


class Storable(Protocol):
    """What is stored of a client."""

    number: int
    fd: int
    state_log: Any


@dataclass
class Stored:
    """A client of the previous daemon: its connection and records, how many messages of the unfinished input it has
    received, and its next sequence number."""

    number: int
    sock: socket.socket
    file: File
    image: client_log_format.ClientImage
    slot: int
    received: int
    seq: int


class Handover:
    """Stores clients and logs in ``store``; reads what ``passed`` (names and descriptors) has of the previous daemon.

    ``clients`` are the stored clients, ``unfinished`` the input that was being processed, if any; ``dropped`` lists
    what was not understood. ``interrupted`` is the serial of the unfinished input, also of one that is given up; or 0.
    """

    def __init__(
        self, store: Store, passed: Iterable[tuple[str, int]], soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._store = store
        self._soon = soon
        self._by_number: dict[int, StoredClientLog] = {}
        #: returns all that is known of a client as records
        self.image: Callable[[Any], bytes] = lambda _client: b""
        self.dropped: list[str] = []
        #: logs of sources that version 1.0 has left, by number
        self._logs: list[tuple[int, int]] = []
        #: the memory of sources and counters
        self._memories: list[int] = []
        self._unstored_memory = False
        #: the input that was not finished, if any, even if it is not processed again
        self.interrupted = 0
        #: clients that could not be stored
        self.not_stored = 0
        #: the descriptor of `inflight` until it is stored
        self._unstored_inflight: list[int] = []
        #: the client whose blocked packet is dropped
        self._given_up = -1
        pairs: dict[int, list[int]] = {}
        states = []
        for name, fd in passed:
            kind, number = split_number(name)
            if kind == CLIENT:
                pairs.setdefault(number, []).append(fd)
            elif kind == SOURCES:
                self._logs.append((number, fd))
            elif kind == MEMORY:
                self._memories.append(fd)
            elif kind == INFLIGHT:
                states.append(fd)
            else:
                self._drop(f"a descriptor called {name!r}", name, fd)
        self._logs.sort()
        self.inflight, self.unfinished = self._open_inflight(states)
        self.clients = [
            one for number in sorted(pairs) if (one := self._open_client(number, pairs[number])) is not None
        ]
        taken = {one.slot for one in self.clients}
        self._next_slot = max(taken, default=-1) + 1
        self._free = [slot for slot in range(self._next_slot) if slot not in taken]
        self._complete_last_send()
        # If this daemon ends before it has begun, the next one must find what this one has found.
        for one in self.clients:
            if one.slot >= 0:
                layout.write_slot(self.inflight.memory, one.slot, self._slot_of(one))
        layout.write_number(self.inflight.memory, layout.AT_SENDING, 0)

    def _slot_of(self, one: Stored) -> layout.ClientSlot:
        serial = self.unfinished.serial if self.unfinished is not None else 0
        return layout.ClientSlot(one.number, serial, one.received, one.seq)

    def _drop(self, what: str, name: str, *fds: int) -> None:
        self.dropped.append(what)
        for fd in fds:
            os.close(fd)
        self._store.forget(name)

    # -- the input being processed

    def _open_inflight(self, left: list[int]) -> tuple[InflightState, layout.InflightInput | None]:
        unfinished = None
        for fd in left:
            if os.fstat(fd).st_size == layout.SIZE:
                memory = map_whole(fd, layout.SIZE)
                if layout.is_valid(memory):
                    os.close(fd)
                    unfinished = layout.read_unfinished(memory)
                    self.interrupted = 0 if unfinished is None else unfinished.serial
                    if unfinished is not None and layout.tries(memory, unfinished.serial) >= MAX_TRIES:
                        size = len(unfinished.packet) + sum(map(len, unfinished.datagrams))
                        what = f"{len(unfinished.datagrams)} datagrams" if unfinished.datagrams else "a client's packet"
                        if unfinished.kind == layout.RETRY:  # that packet is in the client's log
                            self._given_up = unfinished.number
                        else:
                            what += f" ({size} bytes)"
                        self.dropped.append(f"{what} over which {MAX_TRIES} daemons have ended")
                        unfinished = None
                    return InflightState(memory), unfinished
                memory.close()
            self._drop("the state of another version, and with it the input being processed", INFLIGHT, fd)
        fd = create(INFLIGHT)
        memory = map_whole(fd, layout.SIZE)
        layout.initialize(memory)
        self._unstored_inflight = [fd]
        self._store_inflight()
        return InflightState(memory), None

    def count_try(self) -> None:
        """Count that the unfinished input is processed now; not earlier, as a start may be refused for other causes."""
        if self.unfinished is not None:
            layout.count_try(self.inflight.memory, self.unfinished.serial)

    def _store_inflight(self) -> bool:
        """Store the state of the input being processed unless that was done; False if systemd refuses it."""
        while self._unstored_inflight and self._store.store(INFLIGHT, self._unstored_inflight[0]):
            os.close(self._unstored_inflight.pop())
        return not self._unstored_inflight

    def _complete_last_send(self) -> None:
        """Account for the send that was in progress: its client may have received more than its log says."""
        armed = layout.read_sending(self.inflight.memory)
        one = next((one for one in self.clients if armed is not None and one.slot == armed.slot), None)
        if armed is None or one is None:
            return
        if armed.length:
            if armed.taken and one.file.end == armed.length:
                with contextlib.suppress(OSError):  # its next image will have that
                    one.file.append(client_log_format.pack_record(client_log_format.SENT, number=armed.taken))
                one.image.records.append(client_log_format.Record(client_log_format.SENT, 0, armed.taken, b""))
        elif self.unfinished is not None:
            one.received = max(one.received, armed.got)

    # -- clients

    def _open_client(self, number: int, fds: list[int]) -> Stored | None:
        """Read a stored client; None if too little of it is there."""
        name = f"{CLIENT}{number}"
        files = [fd for fd in fds if not stat.S_ISSOCK(os.fstat(fd).st_mode)]
        sockets = [fd for fd in fds if fd not in files and _is_connection(fd)]
        if len(sockets) != 1 or len(files) != 1 or len(fds) != 2:
            self._drop(f"half of connection {number}", name, *fds)
            return None
        try:
            file = File(files[0])
            image = self._read_log(number, file)
        except OSError as error:
            self._drop(f"connection {number}: its log is no file of this program ({error.strerror})", name, *fds)
            return None
        if not image.size:
            self._drop(f"connection {number}: {' '.join(image.unknown) or 'its log is empty'}", name, *fds)
            return None
        self.dropped += [f"connection {number}: {unknown}" for unknown in image.unknown]
        at, slot = self._read_slot(number, image.head.get("slot"))
        received, seq = _before_input(number, image, slot, self.unfinished)
        sock = socket.socket(fileno=sockets[0])
        sock.setblocking(False)
        return Stored(number, sock, file, image, at, received, seq)

    def _read_log(self, number: int, file: File) -> client_log_format.ClientImage:
        """Read a client's log, without a torn record at its end or a packet that is given up. Raises OSError."""
        image = client_log_format.read_image(file.read() if file.understood else b"")
        file.cut(image.size)
        if number == self._given_up and image.size:
            file.append(client_log_format.pack_record(client_log_format.RESUMED))
            image.records.append(client_log_format.Record(client_log_format.RESUMED, 0, 0, b""))
        return image

    def _read_slot(self, number: int, at: object) -> tuple[int, layout.ClientSlot]:
        """Read the slot that a client's log names; -1 and an empty one if it is not the client's."""
        if isinstance(at, int) and 0 <= at < layout.MAX_SLOTS:
            slot = layout.read_slot(self.inflight.memory, at)
            if slot.number == number:  # otherwise the state is another one, in which it had no slot
                return at, slot
        return -1, layout.ClientSlot(0, 0, 0, 0)

    @property
    def last_number(self) -> int:
        """Return the highest number that a client has had so far."""
        known = layout.read_number(self.inflight.memory, layout.AT_CLIENTS)
        return max(known, *(one.number for one in self.clients), 0)

    def keep(self, client: Storable) -> None:
        """Store a client, so that it outlives this process."""
        fd = -1
        try:
            fd = create(f"{CLIENT}{client.number}")
            file = File(fd)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            self._not_kept(error)
            return
        slot = self._take_slot()
        if slot < 0:
            file.close()
            self._not_kept(OSError(0, "too many are stored"))
            return
        layout.write_number(self.inflight.memory, layout.AT_CLIENTS, client.number)
        layout.write_slot(self.inflight.memory, slot, layout.ClientSlot(client.number, 0, 0, 0))
        self._begin(client, slot, file)
        name = f"{CLIENT}{client.number}"
        if client.state_log is NOTHING:
            return
        # Without the state of the input a client could miss messages of it, or get them twice.
        if not (self._store_inflight() and self._store.store(name, client.fd, file.fd)):
            self.forget(client)
            self._not_kept(OSError(0, "systemd does not accept its connection"))

    def resume(self, client: Storable, stored: Stored) -> None:
        """Store a restored client again."""
        slot = stored.slot if stored.slot >= 0 else self._take_slot()
        if slot < 0:
            self._store.forget(f"{CLIENT}{client.number}")
            stored.file.close()
            self._not_kept(OSError(0, "too many are stored"))
            return
        layout.write_slot(self.inflight.memory, slot, self._slot_of(stored))
        self._begin(client, slot, stored.file)

    def _take_slot(self) -> int:
        """Return a free slot; -1 if there is none."""
        if self._free:
            return heappop(self._free)
        if self._next_slot >= layout.MAX_SLOTS:
            return -1
        self._next_slot += 1
        return self._next_slot - 1

    def _begin(self, client: Storable, slot: int, file: File) -> None:
        self.inflight.assign(client.fd, slot)

        def give_up(error: OSError) -> None:
            self.forget(client)
            self._not_kept(error)

        def renew() -> None:
            if client.state_log is not state_log:
                return
            try:
                file.replace(self.image(client))
            except OSError as error:
                give_up(error)

        state_log = StoredClientLog(client.number, slot, client.fd, file, self.inflight, give_up)
        client.state_log = state_log
        self._by_number[client.number] = state_log
        file.grown = lambda: self._soon(renew)
        renew()

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
        state_log = self._by_number.pop(client.number, None)
        if state_log is None:
            return
        client.state_log = NOTHING
        self._store.forget(f"{CLIENT}{client.number}")
        self.inflight.release(client.fd)
        if layout.read_number(self.inflight.memory, layout.AT_SENDING) == state_log.slot + 1:
            # The last send was to this client, not to the next one with its slot.
            layout.write_number(self.inflight.memory, layout.AT_SENDING, 0)
        layout.write_slot(self.inflight.memory, state_log.slot, layout.ClientSlot(0, 0, 0, 0))
        heappush(self._free, state_log.slot)
        state_log.file.close()

    def refuse(self, stored: Stored, why: str) -> None:
        """Drop a stored client that cannot be served."""
        self.dropped.append(f"connection {stored.number}: {why}")
        stored.sock.close()
        stored.file.close()
        self._store.forget(f"{CLIENT}{stored.number}")

    # -- sources and counters

    def open_memory(self, slots: int, expected: int) -> SlotMemory:
        """Open the memory of sources and counters with room for so many slots, of which so many ``expected`` sources;
        what an unfinished input has changed is taken back. Raises OSError if there is no memory."""
        fd = -1
        for one in self._memories:
            size = os.fstat(one).st_size
            magic = os.pread(one, len(slot_layout.MAGIC), 0)
            if fd < 0 and slot_layout.SLOTS < size <= MAX_MEMORY and magic == slot_layout.MAGIC:
                fd = one
            else:
                self._drop("the state of sources and the counters of another version", MEMORY, one)
                self._unstored_memory = True  # all of this name are forgotten, also what is in use
        if fd < 0:
            fd = create(MEMORY)
            os.ftruncate(fd, slot_layout.size_for(slots))
            os.posix_fallocate(fd, 0, slot_layout.SLOTS + slot_layout.STEP)
            self._unstored_memory = True
        mapped = map_whole(fd, max(os.fstat(fd).st_size, slot_layout.size_for(slots)))
        self._memories = [fd]
        memory = SlotMemory(mapped, partial(_reserve, fd), expected)
        dropped = memory.restore(self.interrupted)
        if dropped:
            self.dropped.append(f"the damaged state of {dropped} sources")
        self.inflight.attach(memory)
        self.store_memory()
        return memory

    def store_memory(self) -> bool:
        """Store the memory unless that was done; False if systemd refuses it."""
        if self._unstored_memory and self._store.store(MEMORY, self._memories[0]):
            self._unstored_memory = False
        return not self._unstored_memory

    def take_logs(self) -> Iterator[bytes]:
        """Yield the logs of sources that version 1.0 has left, the oldest first, and remove them."""
        for number, fd in self._logs:
            yield os.pread(fd, os.fstat(fd).st_size, 0)
            self._store.forget(f"{SOURCES}{number}")
            os.close(fd)
        self._logs.clear()


def _reserve(fd: int, start: int, size: int) -> bool:
    """Reserve memory, so that it is there when it is written to; False if there is none."""
    try:
        os.posix_fallocate(fd, start, min(size, os.fstat(fd).st_size - start))
    except OSError:
        return False
    return True


def _before_input(
    number: int, image: client_log_format.ClientImage, slot: layout.ClientSlot, unfinished: layout.InflightInput | None
) -> tuple[int, int]:
    """Return how many messages of the unfinished input a client has received, and its next seq. If the input came from
    the client, its log is taken back to the state before: the input will be replayed as a whole."""
    if unfinished is None:
        return 0, slot.seq
    received = slot.got if slot.serial == unfinished.serial else 0
    received = max([received, *(record.delivered for record in image.records if record.serial == unfinished.serial)])
    if unfinished.kind == layout.DATAGRAMS or unfinished.number != number:
        return received, slot.seq
    repeated = client_log_format.REPEATED_WITH_INPUT
    image.records[:] = [
        record for record in image.records if record.serial != unfinished.serial or record.kind not in repeated
    ]
    return received, unfinished.seq


def _is_connection(fd: int) -> bool:
    """Whether a socket is connected to a client of the bus."""
    from systemd.daemon import is_socket  # it is there where anything was stored

    return bool(is_socket(fd, socket.AF_UNIX, socket.SOCK_SEQPACKET, listening=0))
