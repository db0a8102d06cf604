"""Restores the state that the daemon before this one has left: source trackers, clients, and the input that it was
processing when it ended."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from bccnd import log
from bccnd.bus.client_restore import replay_input, restore_clients
from bccnd.bus.server import Bus
from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.arrival_times import arrival
from bccnd.core.counters import SegmentCounters
from bccnd.core.dedup import TrackerTable
from bccnd.core.deliveries import Deliveries
from bccnd.core.ingress import Ingress
from bccnd.core.liveness import Liveness
from bccnd.core.tracker_log import TrackerLog
from bccnd.core.tracker_replay import replay
from bccnd.core.tracker_snapshot import start_log
from bccnd.handover.stored_state import Handover
from bccnd.handover.tracker_log_writer import TrackerLogWriter, first_file
from bccnd.monitoring.service_status import count_of
from bccnd.native import scan
from bccnd.native.inflight_layout import DATAGRAMS, InflightInput, was_broadcast
from bccnd.net.loop import Loop
from bccnd.net.segment import Peers, Segment
from bccnd.net.service_manager import ServiceManager
from bccnd.net.socket_activation import ActivatedSockets


class Restored(NamedTuple):
    """Numbers of restored ``clients``, and of things ``dropped`` because their form is unknown."""

    clients: int
    dropped: int
    tracker_log_writer: TrackerLogWriter


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


def restore(
    handover: Handover,
    ingress: Ingress,
    sources: TrackerTable,
    anonymous: AnonymousDedup,
    liveness: Liveness,
    bus: Bus,
    segments: Sequence[Segment],
) -> Restored:
    """Continue where the daemon before this one ended, and record the state for the next one."""
    unfinished = handover.unfinished
    gc.disable()  # nothing that is made from here on is garbage
    replayed = replay(
        handover.take_tracker_logs(),
        sources,
        anonymous,
        liveness,
        now=time.monotonic(),
        clock_us=time.time_ns() // 1000,
        skip_serial=unfinished.serial if unfinished is not None else 0,
    )
    tracker_log = start_log(sources, anonymous, liveness, first_file(handover), time.monotonic())
    ingress.tracker_log = bus.transaction.tracker_log = tracker_log
    inflight = handover.inflight
    from_client = unfinished is not None and unfinished.kind != DATAGRAMS
    broadcast = [from_client and was_broadcast(inflight.memory, number) for number in range(len(segments))]
    for number, segment in enumerate(segments):
        segment.record_sends(inflight, number, already_sent=broadcast[number])
    found_any = bool(handover.clients or replayed.records)
    received = restore_clients(bus, handover)
    if unfinished is not None:
        feed = partial(_feed, ingress, bus, segments, tracker_log)
        replay_input(bus, handover, unfinished, received, feed, broadcast=any(broadcast))
    for number, segment in enumerate(segments):
        segment.record_receives(inflight, number)
    writer = TrackerLogWriter(handover, tracker_log)
    # Complete the new file now: daemons that end early, one after the other, must not leave a file each.
    while writer.step(time.monotonic()):
        pass
    restored = Restored(len(bus.clients), len(handover.dropped) + len(replayed.problems), writer)
    for what in [*handover.dropped, *replayed.problems]:
        text = f"state of the previous daemon dropped, as it is not understood: {what}"
        log.event("state_dropped", text, reason=what, drop="state_dropped")
    if found_any:
        found = f"{count_of(restored.clients, 'client')}, {count_of(replayed.sources, 'source')}"
        if unfinished is not None:
            found += ", and the input that was being processed"
        log.event("taken_over", f"taken over: {found}", count=restored.clients)
    return restored


def _feed(
    ingress: Ingress, bus: Bus, segments: Sequence[Segment], tracker_log: TrackerLog, unfinished: InflightInput
) -> None:
    """Judge and deliver datagrams that the daemon before this one had received."""
    segment = next((one for one in segments if one.options.name.encode() == unfinished.label), None)
    counters = SegmentCounters(unfinished.label.decode(errors="replace")) if segment is None else segment.counters
    peers = Peers.of(memoryview(unfinished.names), unfinished.name_size)
    wall = time.time_ns()
    stamps = [unfinished.stamps[0] or wall, *unfinished.stamps[1:]]
    latest = time.monotonic()
    now = unfinished.now or arrival(latest, wall - stamps[0])
    tracker_log.serial = unfinished.serial
    deliveries = Deliveries()
    ingress.feed_late(deliveries, counters, list(unfinished.datagrams), peers, now, stamps, latest=latest)
    bus.fanout.deliver(deliveries)
