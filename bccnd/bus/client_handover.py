"""Hands clients over to the next daemon: records that are kept while this daemon runs, and at a clean stop an image of
their queues."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from bccnd import log
from bccnd.bus.clients.client import Client
from bccnd.bus.clients.registry import BUG
from bccnd.bus.server import Bus
from bccnd.core.formats.image_sections import BYTES, Column, Section
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.wire import frames
from bccnd.errors import BadFrame
from bccnd.handover.descriptor_store import DescriptorStore, StoredClient

#: the kind of the sections of clients
CLIENT: Final = "client"


def image(clients: Iterable[Client]) -> Iterator[Section]:
    """Yield the state of stored clients that is not in their records: queues, counters, and the blocked packet."""
    for client in clients:
        if client.record is not None:
            entries = list(client.queue)
            counts = {"number": client.number, "published": client.published, "lost": client.lost}
            # An entry is a frame, or a number of missing messages.
            columns: dict[str, Column] = {
                "frame": (BYTES, [b"" if isinstance(entry, int) else entry for entry in entries]),
                "gap": ("Q", [entry if isinstance(entry, int) else 0 for entry in entries]),
                "blocked": (BYTES, [] if client.blocked_packet is None else [client.blocked_packet]),
            }
            yield Section(CLIENT, counts, columns)


class ClientRestorer:
    """Admits the clients of the previous daemon. ``left`` has the sections of clients by number; after a crash it is
    empty, and each client receives a gap of unknown size."""

    def __init__(self, bus: Bus, store: DescriptorStore, left: Mapping[int, Section], *, after_crash: bool) -> None:
        self._bus = bus
        self._store = store
        self._left = left
        self._after_crash = after_crash

    def restore(self) -> None:
        """Restore all clients. To be called once, when everything else is ready."""
        bus = self._bus
        bus.acceptor.connections = self._store.last_number
        for stored in self._store.clients:
            client = self._restore_safely(stored)
            if client is not None and client.open:
                bus.reader.watch(client)
                if self._after_crash:
                    bus.fanout.send_control(client, frames.gap(0))
                elif client.queue:
                    bus.loop.soon(partial(_flush, bus, client))
        self._store.clients.clear()
        bus.enforce_rules()

    def _restore_safely(self, stored: StoredClient) -> Client | None:
        bus, fd = self._bus, stored.sock.fileno()
        try:
            return self._restore(stored)
        except Exception:  # noqa: BLE001 - no client is worth the others
            log.bug("a client of the previous daemon could not be taken over")
            if fd in bus.clients:
                bus.registry.end(bus.clients[fd], "bug", BUG)
            self._store.refuse(stored, BUG)
            return None

    def _restore(self, stored: StoredClient) -> Client:
        bus, head = self._bus, stored.head
        program = str(head.get("program", "")).encode("ascii")
        peer = bus.acceptor.identifier.restore(stored.sock, program, int(head.get("started", 0)))
        dialect = DIALECTS[str(head.get("dialect", "path"))]
        client = bus.acceptor.admit(stored.sock, stored.number, peer, dialect, bus.quota.reopen(peer.uid))
        client.since = float(head.get("since", time.time()))
        for frame in stored.frames:
            if not _apply(bus, client, frame):
                self._store.dropped.append(f"connection {stored.number}: the request {frame[:64]!r}")
        self._store.begin(client, stored.record)
        left = self._left.get(stored.number)
        if left is not None:
            self._restore_queue(client, left)
        return client

    def _restore_queue(self, client: Client, left: Section) -> None:
        bus = self._bus
        client.published = int(left.fields.get("published", 0))
        client.lost = int(left.fields.get("lost", 0))
        for frame, gap in zip(left.column("frame", b"", 0), left.column("gap", 0, 0), strict=True):
            if frame:
                client.queue.put(frame)
            else:
                client.queue.add_gap(gap)
        bus.queues.restore(client)
        for packet in left.column("blocked", b"", 0):
            bus.backpressure.block(client, packet, partial(bus.reader.process, client, packet))
            bus.backpressure.unblock_soon(client)


def _apply(bus: Bus, client: Client, frame: bytes) -> bool:
    """Apply a frame of a client's record without checking rights; return False for an unknown frame."""
    try:
        verb, key, _ = frames.read(frame)
    except BadFrame:
        return False
    if verb == frames.SUB:
        bus.subscriptions.add(client, key)
    elif verb == frames.UNSUB:
        bus.subscriptions.remove(client, [key])
    else:
        return verb == frames.CMSG and bus.requests.replay(client, frame)
    return True


def _flush(bus: Bus, client: Client) -> None:
    """Send the queue: a socket with a little room is not reported as ready before the client reads more."""
    if client.open:
        bus.queues.flush(client)


def describe(bus: Bus, client: Any) -> tuple[dict[str, Any], list[bytes]]:
    """Return the head and the frames of a client's record: they describe it from its beginning."""
    peer = client.peer
    head = {
        "program": peer.program.decode("ascii"),
        "started": peer.started,
        "dialect": client.dialect.name,
        "since": client.since,
    }
    return head, [*bus.requests.requests_of(client), *bus.subscriptions.frames_of(client)]
