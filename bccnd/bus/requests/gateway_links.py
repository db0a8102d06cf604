"""Judges and passes on datagrams that gateways bring from other segments, and keeps the reports of gateways.

Invariant: a datagram of a link is judged once, like any other, under the link's name; an accepted one goes to local
clients, to the segments, and to all links but its own. One that was sent more than `dedup.horizon` ago stays on this
host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from bccnd.bus.clients.client import Client
from bccnd.bus.delivery.fanout import Fanout
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.receiving.arrival_times import MAX_WAIT_NS
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.receiving.judgement import arrival_from_link
from bccnd.core.wire import frames
from bccnd.drop_catalog.drops import GATEWAY_REASONS
from bccnd.errors import BadFrame
from bccnd.snapshot import GatewayCounts, GatewayState

#: seconds without a report after which a gateway counts as down
_SILENT: Final = 5.0


class GatewayLinks:
    """Passes datagrams on and keeps reports.

    ``names`` are those of links; ``broadcast`` sends a datagram to the segments, of which ``copies`` come back;
    ``read_report`` parses a gateway's report, None for bytes that are none.
    """

    def __init__(
        self,
        ingress: Ingress,
        fanout: Fanout,
        names: Sequence[str],
        read_report: Callable[[bytes], GatewayCounts | None],
        broadcast: Callable[[bytes], object],
        *,
        copies: int,
    ) -> None:
        self.counters = [SegmentCounters(name) for name in names]
        #: accepted, and too old to be passed on
        self.late = 0
        self._ingress = ingress
        self._fanout = fanout
        self._by_name = {counters.name: counters for counters in self.counters}
        self._read_report = read_report
        self._broadcast = broadcast
        self._copies = copies
        #: the last report of each gateway, with its client and its time
        self._reports: dict[str, tuple[Client, float, GatewayCounts]] = {}
        #: by gateway, how often it was started since this daemon, and the last of these times (monotonic)
        self._starts: dict[str, tuple[int, float]] = {}
        self._created = time.monotonic()
        #: gateways that are configured
        self.expected: list[str] = []

    def bring(self, payload: bytes) -> bool:
        """Process a datagram of a link; return False for bytes that are none."""
        try:
            name, way, received_ns, peer, datagram = frames.read_arrived(payload)
        except BadFrame:
            return False
        counters = self._by_name.get(name)
        if counters is None:
            return False
        # The gateway uses the same clock, which may have been set since.
        wall_ns = time.time_ns()
        received_ns = min(received_ns, wall_ns)
        waited = min(wall_ns - received_ns, MAX_WAIT_NS)
        now = max(0.0, time.monotonic() - waited * 1e-9)  # a clock may have been set since the boot
        late = waited > self._ingress.limits.horizon * 1e9
        deliveries = Deliveries()
        arrival = arrival_from_link(counters, way, peer, now, received_ns, late=late)
        accepted = self._ingress.feed_link(deliveries, arrival, datagram, copies=self._copies)
        for receivers, frame in deliveries:
            self._fanout.send(receivers, frame)
        if accepted and late:
            self.late += 1
        elif accepted:
            self._broadcast(datagram)
        return True

    # -- reports

    def report(self, client: Client, text: bytes) -> bool:
        """Keep the report of a gateway; return False for bytes that are none."""
        report = self._read_report(text)
        if report is None:
            return False
        name, started = report.gateway, report.started
        self._reports[name] = (client, time.monotonic(), report)
        starts, last = self._starts.get(name, (0, self._created))
        if started > last:
            self._starts[name] = (starts + 1, started)
        return True

    def has_reported(self, name: str) -> bool:
        """Whether the counts of a gateway are known: one that runs by itself has some before this daemon starts."""
        return name in self._reports

    def __iter__(self) -> Iterator[GatewayState]:
        """Yield the state of each gateway that is configured or connected."""
        for name in dict.fromkeys([*self.expected, *self._reports]):
            if name not in self._reports:
                yield GatewayState(name, dropped=dict.fromkeys(GATEWAY_REASONS, 0))
                continue
            client, when, report = self._reports[name]
            up = client.open and time.monotonic() - when < _SILENT
            if not up and name not in self.expected:
                continue
            dropped = dict(report.dropped)
            if name in self._by_name:
                dropped["late"] += self.late + self._ingress.too_old_for_links
            starts, _ = self._starts.get(name, (0, 0.0))
            reported = {**vars(report), "dropped": dropped}
            yield GatewayState(**reported, up=up, pid=client.peer.pid, starts=starts)
