"""What outlives the daemon: files in memory and connections, in the keeping of systemd, and taking them over.

Law: there is one way to end. Whether the daemon is stopped, killed or aborted, the same things lie in the store: every
client's connection with its log (`core.client_records`), the input being processed (`native.inflight_layout`), and
the log of the trackers (`core.tracker_log`). What is not understood is given up, and said. Source: sd_notify(3), "FDSTORE=1".
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Final, Protocol

from bccnd import log
from bccnd.core import client_records
from bccnd.handover.client_log import NOTHING, StoredClientLog
from bccnd.handover.memfd import File, create, map_whole
from bccnd.native import inflight_layout as layout
from bccnd.native.inflight import InflightState

#: names in the store
LEDGER: Final = "ledger"
CLIENT: Final = "client-"
SOURCES: Final = "sources-"
_NAMED: Final = re.compile(r"(client-|sources-)([0-9]{1,18})")
#: times that an input is worked through again; one that kills the daemon each time is given up
MAX_TRIES: Final = 3
#: files of the annals at a time: the last that is whole, one that could not be finished, and the one that is written
MAX_ANNALS: Final = 3


class Store(Protocol):
    """Where descriptors are kept: see `net.service_manager`."""

    def store(self, name: str, *descriptors: int) -> bool: ...
    def forget(self, name: str) -> None: ...


class Keeping(Protocol):
    """A client, as far as it is kept."""

    number: int
    fd: int
    kept: Any


@dataclass
class Stored:
    """A client as it was left: its connection, what is known of it, how much it had got of the unfinished input, and
    the seq that it is to use next."""

    number: int
    sock: socket.socket
    file: File
    tape: client_records.Tape
    slot: int
    had: int
    seq: int


class Handover:
    """Keeps what is to outlive us in ``store``; takes over from ``passed`` (names and descriptors, which are ours from
    now on) what was left there.

    ``clients`` are those that were left, ``unfinished`` the input that was worked on, if there was one; ``tracker_log`` the
    files of the sources, the oldest first; ``dropped`` says what was not understood.
    """

    def __init__(
        self, store: Store, passed: Iterable[tuple[str, int]], soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._store = store
        self._soon = soon
        self._by_number: dict[int, StoredClientLog] = {}
        #: makes the image of a client
        self.image: Callable[[Any], bytes] = lambda _client: b""
        self.dropped: list[str] = []
        self.tracker_log: list[tuple[int, int]] = []
        #: clients that could not be kept
        self.unkept = 0
        #: the client whose packet, which had to wait, is given up
        self._given_up = -1
        pairs: dict[int, list[int]] = {}
        ledgers = []
        for name, fd in passed:
            found = _NAMED.fullmatch(name)
            if found is not None and found[1] == CLIENT:
                pairs.setdefault(int(found[2]), []).append(fd)
            elif found is not None:
                self.tracker_log.append((int(found[2]), fd))
            elif name == LEDGER:
                ledgers.append(fd)
            else:
                self._drop(f"a descriptor called {name!r}", name, fd)
        self.tracker_log.sort()
        self.inflight, self.unfinished = self._open_ledger(ledgers)
        self.clients = [
            one for number in sorted(pairs) if (one := self._open_client(number, pairs[number])) is not None
        ]
        taken = {one.slot for one in self.clients}
        self._next_slot = max(taken, default=-1) + 1
        self._free = [slot for slot in range(self._next_slot) if slot not in taken]
        self._settle_who_was_sent_to()
        # Should we end before we have begun, whoever comes then is to find what we have found.
        for one in self.clients:
            if one.slot >= 0:
                layout.put_slot(self.inflight.memory, one.slot, self._slot_of(one))
        layout.put_number(self.inflight.memory, layout.AT_ARMED, 0)

    def _slot_of(self, one: Stored) -> layout.ClientSlot:
        serial = self.unfinished.serial if self.unfinished is not None else 0
        return layout.ClientSlot(one.number, serial, one.had, one.seq)

    def _drop(self, what: str, name: str, *fds: int) -> None:
        self.dropped.append(what)
        for fd in fds:
            os.close(fd)
        self._store.forget(name)

    # -- the ledger

    def _open_ledger(self, left: list[int]) -> tuple[InflightState, layout.InflightInput | None]:
        unfinished = None
        for fd in left:
            if os.fstat(fd).st_size == layout.SIZE:
                memory = map_whole(fd, layout.SIZE)
                if layout.is_inflight(memory):
                    os.close(fd)
                    unfinished = layout.unfinished(memory)
                    if unfinished is not None and layout.try_again(memory, unfinished.serial) > MAX_TRIES:
                        size = len(unfinished.packet) + sum(map(len, unfinished.datagrams))
                        what = f"{len(unfinished.datagrams)} datagrams" if unfinished.datagrams else "a client's packet"
                        if unfinished.kind == layout.HELD:  # that packet is on tape
                            self._given_up = unfinished.number
                        else:
                            what += f" ({size} bytes)"
                        self.dropped.append(f"{what} over which {MAX_TRIES} daemons have ended")
                        unfinished = None
                    return InflightState(memory), unfinished
                memory.close()
            self._drop("a ledger of another version, and with it what was being worked on", LEDGER, fd)
        fd = create(LEDGER)
        memory = map_whole(fd, layout.SIZE)
        layout.begin(memory)
        self._store.store(LEDGER, fd)
        os.close(fd)
        return InflightState(memory), None

    def _settle_who_was_sent_to(self) -> None:
        """The client that was being sent to may have got more than is said of it elsewhere."""
        armed = layout.armed(self.inflight.memory)
        one = next((one for one in self.clients if armed is not None and one.slot == armed.slot), None)
        if armed is None or one is None:
            return
        if armed.length:
            if armed.taken and one.file.end == armed.length:
                with contextlib.suppress(OSError):  # the next image of it will have that
                    one.file.append(client_records.record(client_records.TOOK, number=armed.taken))
                one.tape.records.append(client_records.Record(client_records.TOOK, 0, armed.taken, b""))
        elif self.unfinished is not None:
            one.had = max(one.had, armed.got)

    # -- clients

    def _open_client(self, number: int, fds: list[int]) -> Stored | None:
        """A client that was left, or None for one of which too little is there."""
        name = f"{CLIENT}{number}"
        files = [fd for fd in fds if not stat.S_ISSOCK(os.fstat(fd).st_mode)]
        sockets = [fd for fd in fds if fd not in files and _is_connection(fd)]
        if len(sockets) != 1 or len(files) != 1 or len(fds) != 2:
            self._drop(f"half of what belongs to connection {number}", name, *fds)
            return None
        try:
            file = File(files[0])
            found = client_records.read(file.read() if file.understood else b"")
            file.cut(found.size)
            if number == self._given_up and found.size:
                file.append(client_records.record(client_records.GOES_ON))
                found.records.append(client_records.Record(client_records.GOES_ON, 0, 0, b""))
        except OSError as error:
            self._drop(f"connection {number}: what is known of it is no file of ours ({error.strerror})", name, *fds)
            return None
        if not found.size:
            self._drop(f"connection {number}: {' '.join(found.strange) or 'nothing is known of it'}", name, *fds)
            return None
        self.dropped += [f"connection {number}: {one}" for one in found.strange]
        named = found.head.get("slot")
        slot_number, slot = -1, layout.ClientSlot(0, 0, 0, 0)
        if isinstance(named, int) and 0 <= named < layout.MAX_SLOTS:
            known = layout.slot(self.inflight.memory, named)
            if known.number == number:  # else it is another ledger, in which it had no slot
                slot_number, slot = named, known
        had, seq = 0, slot.seq
        unfinished = self.unfinished
        if unfinished is not None:
            had = slot.got if slot.serial == unfinished.serial else 0
            had = max([had, *(one.got for one in found.records if one.serial == unfinished.serial)])
            if unfinished.kind != layout.DATAGRAMS and unfinished.number == number:
                # It will be worked through again as a whole, from where its client stood before.
                seq = unfinished.seq
                records = found.records
                records[:] = [
                    one
                    for one in records
                    if one.serial != unfinished.serial or one.kind not in client_records.OF_THE_INPUT
                ]
        sock = socket.socket(fileno=sockets[0])
        sock.setblocking(False)
        return Stored(number, sock, file, found, slot_number, had, seq)

    @property
    def last_number(self) -> int:
        """The highest number that a client has had so far."""
        known = layout.number_at(self.inflight.memory, layout.AT_CLIENTS)
        return max(known, *(one.number for one in self.clients), 0)

    def keep(self, client: Keeping) -> None:
        """From now on a client outlives us."""
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
            self._not_kept(OSError(0, "there are too many"))
            return
        layout.put_number(self.inflight.memory, layout.AT_CLIENTS, client.number)
        layout.put_slot(self.inflight.memory, slot, layout.ClientSlot(client.number, 0, 0, 0))
        self._begin(client, slot, file)
        name = f"{CLIENT}{client.number}"
        if client.kept is not NOTHING and not self._store.store(name, client.fd, file.fd):
            self.forget(client)
            self._not_kept(OSError(0, "systemd does not take its connection"))

    def resume(self, client: Keeping, stored: Stored) -> None:
        """A client that was left goes on to outlive us."""
        slot = stored.slot if stored.slot >= 0 else self._take_slot()
        if slot < 0:
            self._store.forget(f"{CLIENT}{client.number}")
            stored.file.close()
            self._not_kept(OSError(0, "there are too many"))
            return
        layout.put_slot(self.inflight.memory, slot, self._slot_of(stored))
        self._begin(client, slot, stored.file)

    def _take_slot(self) -> int:
        """A slot that nobody has; -1 where there is none."""
        if self._free:
            return heappop(self._free)
        if self._next_slot >= layout.MAX_SLOTS:
            return -1
        self._next_slot += 1
        return self._next_slot - 1

    def _begin(self, client: Keeping, slot: int, file: File) -> None:
        self.inflight.assign(client.fd, slot)

        def give_up(error: OSError) -> None:
            self.forget(client)
            self._not_kept(error)

        def renew() -> None:
            if client.kept is not kept:
                return
            try:
                file.replace(self.image(client))
            except OSError as error:
                give_up(error)

        kept = StoredClientLog(client.number, slot, client.fd, file, self.inflight, give_up)
        client.kept = kept
        self._by_number[client.number] = kept
        file.grown = lambda: self._soon(renew)
        renew()

    def _not_kept(self, error: OSError) -> None:
        self.unkept += 1
        log.event(
            "not_kept",
            f"the connection of a client will not outlive a restart of this daemon: {error.strerror}",
            about="client",
            remedy="raise FileDescriptorStoreMax=, LimitNOFILE= or MemoryMax= of the service",
            error=error.strerror or "",
            drop="clients_not_kept",
        )

    def forget(self, client: Keeping) -> None:
        """A client is gone, or cannot be kept any more."""
        kept = self._by_number.pop(client.number, None)
        if kept is None:
            return
        client.kept = NOTHING
        self._store.forget(f"{CLIENT}{client.number}")
        self.inflight.release(client.fd)
        if layout.number_at(self.inflight.memory, layout.AT_ARMED) == kept.slot + 1:
            # What was sent last was sent to this one, and not to whoever has its slot next.
            layout.put_number(self.inflight.memory, layout.AT_ARMED, 0)
        layout.put_slot(self.inflight.memory, kept.slot, layout.ClientSlot(0, 0, 0, 0))
        heappush(self._free, kept.slot)
        kept.file.close()

    def refuse(self, stored: Stored, why: str) -> None:
        """A client that was left cannot be served."""
        self.dropped.append(f"connection {stored.number}: {why}")
        stored.sock.close()
        stored.file.close()
        self._store.forget(f"{CLIENT}{stored.number}")

    # -- sources

    def take_tracker_logs(self) -> Iterator[bytes]:
        """What was written down of the sources, the oldest first."""
        for _, fd in self.tracker_log:
            yield os.pread(fd, os.fstat(fd).st_size, 0)

    def new_tracker_log(self) -> Callable[[bytes], int]:
        """Begin another file for the annals; those that were there are still needed, but for the later ones of more
        than `MAX_ANNALS`: these could not be written to the end. What writes to it. Raises OSError."""
        number = max((number for number, _ in self.tracker_log), default=0) + 1
        for old, fd in self.tracker_log[MAX_ANNALS - 1 :]:
            self._forget_annals(old, fd)
        del self.tracker_log[MAX_ANNALS - 1 :]
        fd = create(f"{SOURCES}{number}")
        self.tracker_log.append((number, fd))
        self._store.store(f"{SOURCES}{number}", fd)
        return lambda data: os.write(fd, data)

    def drop_old_tracker_logs(self) -> None:
        """All that is in older files is in the last one too."""
        for number, fd in self.tracker_log[:-1]:
            self._forget_annals(number, fd)
        del self.tracker_log[:-1]

    def _forget_annals(self, number: int, fd: int) -> None:
        self._store.forget(f"{SOURCES}{number}")
        with contextlib.suppress(OSError):
            os.close(fd)


def _is_connection(fd: int) -> bool:
    """Whether a socket is connected to a client of the bus."""
    from systemd.daemon import is_socket  # it is there where anything was stored

    return bool(is_socket(fd, socket.AF_UNIX, socket.SOCK_SEQPACKET, listening=0))
