"""Continues from the state that the daemon before has left, and leaves that of this one.

Invariant: after a clean stop nothing is lost, doubled or out of order; after a crash connections, subscriptions and
modes are there, no number is used twice, and each client is told. See docs/systemd.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bccnd import log
from bccnd.bus import client_handover
from bccnd.bus.server import Bus
from bccnd.core.formats.image_sections import BYTES, Section, table
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.sending.redundancy import Repeater
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import Liveness
from bccnd.core.tracking.tracker_image import (
    identity_section,
    resume_identities,
    resume_trackers,
    source_section,
    tracker_sections,
)
from bccnd.handover.descriptor_store import DescriptorStore
from bccnd.handover.image import BadImage
from bccnd.monitoring.service_status import count_of
from bccnd.net.loop import Loop
from bccnd.net.segment import Segment
from bccnd.net.service_manager import ServiceManager
from bccnd.net.socket_activation import ActivatedSockets

#: seconds between two writings of trackers that refuse replayed datagrams
TRACKERS_INTERVAL: Final = 10.0
#: seconds between two steps of writing trackers while the daemon runs
STEP_PAUSE: Final = 0.002
#: descriptors stored beside those of clients: the host, the image, trackers twice
_OTHERS: Final = 4


@dataclass
class Left:
    """What the daemon before has left: sections by kind, and why they are missing after a crash."""

    after_crash: bool = False
    why: str = ""
    sections: dict[str, list[Section]] = field(default_factory=dict)

    def of(self, kind: str) -> list[Section]:
        return self.sections.get(kind, [])

    def one(self, kind: str) -> Section:
        return next(iter(self.of(kind)), Section(kind))


def open_store(manager: ServiceManager, sockets: ActivatedSockets, max_clients: int) -> DescriptorStore | None:
    """Open the state kept by the service manager; None without one."""
    if not manager.available:
        for name, descriptor in sockets.stored:
            os.close(descriptor)
            manager.forget(name)
        return None
    needed = 2 * max_clients + _OTHERS
    if 0 < manager.max_stored < needed:
        log.event(
            "doubtful_setting",
            f"bus.max_clients: systemd stores {manager.max_stored} descriptors for this daemon, but that many clients "
            f"need {needed}: further ones lose their connection at a restart",
            remedy=f"set FileDescriptorStoreMax={needed} in the unit, or lower bus.max_clients",
            setting="bus.max_clients",
        )
    return DescriptorStore(manager, sockets.stored)


def read_left(store: DescriptorStore | None, *, monotonic: bool) -> Left:
    """Read what the daemon before has left; ``monotonic`` is whether trackers are written while a daemon runs."""
    left = Left()
    if store is None:
        return left
    sections: list[Section] = []
    try:
        if store.found_any:
            sections = list(store.read_image())
    except BadImage as bad:
        left.after_crash, left.why = True, str(bad)
        if monotonic:
            sections = list(store.read_trackers())
    for section in sections:
        left.sections.setdefault(section.kind, []).append(section)
    return left


def resume_sources(left: Left, sources: TrackerTable, anonymous: AnonymousDedup, liveness: Liveness) -> None:
    """Continue with what was known of sources; before any identity of this host is in use."""
    now, ordered = time.monotonic(), not left.after_crash
    resume_trackers(left.sections, sources, anonymous, liveness, now, ordered=ordered)


def logged_drops(left: Left, segment: str) -> int | None:
    """Return the kernel's drops on a segment that were logged; None if that is not known."""
    return next((s.fields.get("logged_drops") for s in left.of("segment") if s.fields.get("name") == segment), None)


def restore(
    left: Left, store: DescriptorStore, bus: Bus, sources: TrackerTable, repeater: Repeater, ingress: Ingress
) -> None:
    """Continue with copies that are to be sent and with datagrams that are to come back, admit the clients again, and
    continue with the numbers of this host; log what was taken over, what was dropped, and what a crash has lost."""
    repeater.resume(left.one("copies").rows(due=0.0, datagram=b"", spacing=0.0, left=0, since=0.0))
    bus.publisher.send_due_copies()
    ingress.resume_relayed(left.one("relayed").rows(datagram=b"", left=0, since=0.0))
    ingress.own_until_ns = int(left.one("crash").fields.get("own_until_ns", 0))
    store.describe = partial(client_handover.describe, bus)
    by_number = {int(one.fields["number"]): one for one in left.of(client_handover.CLIENT)}
    client_handover.ClientRestorer(bus, store, by_number, after_crash=left.after_crash).restore()
    resume_identities(left.sections, sources, time.monotonic())
    _report(left, store, bus, sources)


def _report(left: Left, store: DescriptorStore, bus: Bus, sources: TrackerTable) -> None:
    for what in store.dropped:
        text = f"state of the previous daemon dropped, as it is not understood: {what}"
        log.event("state_dropped", text, reason=what, drop="state_dropped")
    found = f"{count_of(len(bus.clients), 'client')}, {count_of(len(sources), 'source')}"
    if left.after_crash:
        log.event(
            "crashed",
            f"the daemon before this one has left no state ({left.why}): it was killed or has crashed. Taken over: "
            f"{found}. Messages that it was processing or that waited for clients are lost; each client is told",
            remedy="look for the cause in the log before this line (journalctl -u bccnd), and for 'Out of memory' in "
            "that of the kernel",
            count=len(bus.clients),
            drop="crashes",
        )
    elif bus.clients or len(sources):
        log.event("taken_over", f"taken over: {found}", count=len(bus.clients))


# -- for the next daemon


def image(
    bus: Bus,
    sources: TrackerTable,
    anonymous: AnonymousDedup,
    liveness: Liveness,
    repeater: Repeater,
    ingress: Ingress,
    segments: Sequence[Segment],
) -> Iterator[Section]:
    """Yield all that the next daemon continues from."""
    yield from tracker_sections(sources, anonymous, liveness)
    copies = {"due": "d", "datagram": BYTES, "spacing": "d", "left": "I", "since": "d"}
    yield table("copies", copies, repeater.waiting())
    yield table("relayed", {"datagram": BYTES, "left": "I", "since": "d"}, ingress.relayed())
    yield Section("crash", {"own_until_ns": ingress.own_until_ns})
    yield identity_section(sources)
    for segment in segments:
        yield Section("segment", {"name": segment.options.name, "logged_drops": segment.logged_drops})
    yield from client_handover.image(bus.clients.values())


class TrackerWriter:
    """Writes the sources while the daemon runs, if they refuse replayed datagrams: otherwise a crash would let all of
    these pass."""

    def __init__(self, loop: Loop, store: DescriptorStore, sources: TrackerTable) -> None:
        self._loop = loop
        self._store = store
        self._sources = sources
        self._steps: Iterator[None] = iter(())
        self._busy = False

    def begin(self) -> None:
        """Begin to write, unless that is under way."""
        if not self._busy and self._sources.limits.monotonic:
            self._busy = True
            self._steps = self._store.write_trackers(self._sections())
            self._step()

    def _step(self) -> None:
        try:
            self._busy = next(self._steps, self) is not self
        except OSError as error:
            self._busy = False
            self._store.failed_writes += 1
            log.event(
                "not_kept",
                f"source trackers cannot be stored: {error.strerror}; after a crash, replayed datagrams may pass",
                about="sources",
                remedy="raise MemoryMax= of the service",
                error=error.strerror or "",
                drop="sources_not_kept",
            )
        if self._busy:
            self._loop.later(STEP_PAUSE, self._step)

    def _sections(self) -> Iterator[Section]:
        """Yield some hundred sources at a time."""
        yield Section("written", {"written": time.monotonic()})
        index = self._sources.table.by_src
        for shard in range(index.shards()):
            yield source_section(index.values(shard))
