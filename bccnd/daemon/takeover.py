"""Restores the state that the daemon before this one has left: source trackers, clients, and the input that it was
processing when it ended."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from functools import partial
from mmap import mmap
from typing import NamedTuple

from bccnd import log
from bccnd.bus.client_restore import replay_input, restore_clients
from bccnd.bus.server import Bus
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.receiving.arrival_times import arrival
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.dedup_rules import DedupRules
from bccnd.core.tracking.liveness import HeartbeatRules, Liveness
from bccnd.core.tracking.local_identities import MAX_RELEASED
from bccnd.handover.earlier_version import convert
from bccnd.handover.stored_state import Handover
from bccnd.monitoring.service_status import count_of
from bccnd.native.buffers import scan
from bccnd.native.memory.inflight_layout import DATAGRAMS, InflightInput, was_broadcast
from bccnd.native.memory.slot_layout import size_for
from bccnd.native.memory.slots import SlotMemory
from bccnd.net.loop import Loop
from bccnd.net.segment import Peers, Segment
from bccnd.net.service_manager import ServiceManager
from bccnd.net.socket_activation import ActivatedSockets


class Restored(NamedTuple):
    """Numbers of restored ``clients``, and of things ``dropped`` because their form is unknown."""

    clients: int
    dropped: int


def open_handover(manager: ServiceManager, sockets: ActivatedSockets, loop: Loop, max_clients: int) -> Handover | None:
    """Open the state kept by the service manager; None without one, and in a plain build."""
    if not (manager.available and scan.COMPILED):
        for name, descriptor in sockets.stored:
            os.close(descriptor)
            manager.forget(name)
        return None
    needed = 2 * max_clients + 8
    if 0 < manager.max_stored < needed:
        log.event(
            "doubtful_setting",
            f"bus.max_clients: systemd stores {manager.max_stored} descriptors for this daemon, but that many clients "
            f"need {needed}: further ones lose their connection at a restart",
            remedy=f"set FileDescriptorStoreMax={needed} in the unit, or lower bus.max_clients",
            setting="bus.max_clients",
        )
    return Handover(manager, sockets.stored, loop.soon)


def open_memory(handover: Handover | None, dedup: DedupRules, liveness: HeartbeatRules) -> SlotMemory:
    """Open the memory of sources and counters, with what the daemon before has left. Raises OSError."""
    # Beside the sources: windows of those with gaps, identities, and datagrams of anonymous senders.
    slots = 2 * dedup.max_sources + 2 * MAX_RELEASED
    if handover is None:
        return SlotMemory(mmap(-1, size_for(slots)), expected=dedup.max_sources)
    memory = handover.open_memory(slots, dedup.max_sources)
    if logs := list(handover.take_logs()):
        handover.dropped += convert(logs, memory, dedup, liveness, time.monotonic(), skip=handover.interrupted)
    return memory


def load_trackers(sources: TrackerTable, anonymous: AnonymousDedup, liveness: Liveness) -> None:
    """Continue with what the memory has. No identity may be in use yet."""
    now = time.monotonic()
    sources.load(now, time.time_ns() // 1000)
    anonymous.load()
    liveness.load(now)


def restore(
    handover: Handover,
    ingress: Ingress,
    sources: TrackerTable,
    bus: Bus,
    segments: Sequence[Segment],
) -> Restored:
    """Continue where the daemon before this one ended, and record the state for the next one."""
    unfinished = handover.unfinished
    gc.disable()  # nothing that is made from here on is garbage
    sources.memory.record()
    inflight = handover.inflight
    from_client = unfinished is not None and unfinished.kind != DATAGRAMS
    broadcast = [from_client and was_broadcast(inflight.memory, number) for number in range(len(segments))]
    for number, segment in enumerate(segments):
        segment.record_sends(inflight, number, already_sent=broadcast[number])
    found_any = bool(handover.clients or len(sources))
    known = len(sources)
    received = restore_clients(bus, handover)
    if unfinished is not None:
        sources.memory.begin(unfinished.serial)
        feed = partial(_feed, ingress, bus, segments)
        replay_input(bus, handover, unfinished, received, feed, broadcast=any(broadcast))
    for number, segment in enumerate(segments):
        segment.record_receives(inflight, number)
    for what in handover.dropped:
        text = f"state of the previous daemon dropped, as it is not understood: {what}"
        log.event("state_dropped", text, reason=what, drop="state_dropped")
    restored = Restored(len(bus.clients), len(handover.dropped))
    if found_any:
        found = f"{count_of(restored.clients, 'client')}, {count_of(known, 'source')}"
        if unfinished is not None:
            found += ", and the input that was being processed"
        log.event("taken_over", f"taken over: {found}", count=restored.clients)
    return restored


def _feed(ingress: Ingress, bus: Bus, segments: Sequence[Segment], unfinished: InflightInput) -> None:
    """Judge and deliver datagrams that the daemon before this one had received."""
    segment = next((one for one in segments if one.options.name.encode() == unfinished.label), None)
    counters = SegmentCounters(unfinished.label.decode(errors="replace")) if segment is None else segment.counters
    peers = Peers.of(memoryview(unfinished.names), unfinished.name_size)
    wall = time.time_ns()
    stamps = [unfinished.stamps[0] or wall, *unfinished.stamps[1:]]
    latest = time.monotonic()
    now = unfinished.now or arrival(latest, wall - stamps[0])
    deliveries = Deliveries()
    ingress.feed_late(deliveries, counters, list(unfinished.datagrams), peers, now, stamps, latest=latest)
    bus.fanout.deliver(deliveries)
