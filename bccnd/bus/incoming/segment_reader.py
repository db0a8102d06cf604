"""Reads segments: takes datagrams in batches, judges them, delivers them and records how long that took.

Invariant: a socket is drained before anything is sent that can wait for it, but never for so long that clients starve;
clocks are read once per batch.
"""

from __future__ import annotations

import errno
from typing import Final

from bccnd import log
from bccnd.bus.delivery.fanout import Fanout
from bccnd.core.observing.latency_histogram import LatencyHistogram
from bccnd.core.receiving.arrival_times import MAX_WAIT_NS, arrival
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.receiving.judgement import Arrival
from bccnd.native.system import clock
from bccnd.native.system.sockio import BATCH
from bccnd.net.loop import Handler
from bccnd.net.segment import Segment

#: batches taken from one segment before clients have their turn
ROUNDS: Final = 4
#: nanoseconds from which on a datagram was late: longer than a batch takes, far below any horizon
LATE_NS: Final = 250_000_000


class SegmentReader(Handler):
    """Takes the datagrams of one segment to the clients.

    ``forward`` gets the seconds from the kernel's receive stamp to the clients' sockets, of the oldest datagram that is
    sent with others.
    """

    def __init__(self, segment: Segment, ingress: Ingress, fanout: Fanout, forward: LatencyHistogram) -> None:
        self._segment = segment
        self._receiver = segment.receiver
        self._arrival = Arrival(segment.counters, segment.peers, sent=segment.sender.sent)
        self._ingress = ingress
        self._fanout = fanout
        self._forward = forward
        #: the stamp of the oldest datagram that waits for the batches to be sent, 0 for none
        self._oldest = 0
        self._deliveries = Deliveries()

    def fileno(self) -> int:
        return self._segment.fileno()

    def on_events(self, events: int) -> None:
        # Only broadcasts of this round are expected without an event.
        self.read_available(ROUNDS if events else 1)

    def read_available(self, rounds: int = ROUNDS) -> bool:
        """Process at most so many batches, then send the gathered messages of clients in batch mode; return whether
        there may be more."""
        more = self._process_batches(rounds)
        self._fanout.send_batches()
        if self._oldest:  # the time of this one ends now
            self._forward.add((clock.time_ns() - self._oldest) * 1e-9)
            self._oldest = 0
        return more

    def _process_batches(self, rounds: int) -> bool:
        receiver = self._receiver
        for _ in range(rounds):
            try:
                datagrams = receiver.receive(
                    None if self._ingress.wants_own() else self._arrival.sent, clock.monotonic()
                )
            except BlockingIOError:
                return False
            except OSError as error:
                self._report(error)
                return False
            if receiver.own:
                self._ingress.count_own(self._arrival.counters, receiver.own)
            if datagrams:
                self._process(datagrams)
            if len(datagrams) + receiver.own < BATCH:
                return False
        return True

    def _process(self, datagrams: list[bytes]) -> None:
        """Judge a batch, send its deliveries, and record how long that took."""
        wall = clock.time_ns()
        stamp = self._receiver.stamp_ns() or wall
        latest = clock.monotonic()
        waited = wall - stamp
        # The first one has waited longest. A longer wait means that the wall clock was set.
        late = LATE_NS < waited < MAX_WAIT_NS or stamp < self._ingress.own_until_ns
        batch, deliveries = self._arrival, self._deliveries
        batch.now = arrival(latest, waited) if late else latest
        batch.received_ns = stamp
        if late:
            stamps = [self._receiver.stamp_ns(number) for number in range(len(datagrams))]
            stamps[0] = stamp
            self._ingress.feed_late(deliveries, batch, datagrams, stamps, wall, latest)
        else:
            self._ingress.feed(deliveries, batch, datagrams)
        if not deliveries.count:
            return
        self._fanout.deliver(deliveries)
        if not self._fanout.due:
            self._forward.add((clock.time_ns() - stamp) * 1e-9)
        elif not self._oldest:
            self._oldest = stamp

    def _report(self, error: OSError) -> None:
        name = self._segment.options.name
        log.event(
            "receive_failed",
            f"segment {name}: cannot receive: {error.strerror}",
            about=f"receive/{name}",
            remedy="check that the interface exists and is up (ip link)",
            segment=name,
            error=errno.errorcode.get(error.errno or 0, "UNKNOWN"),
        )
