"""What gateways bring to the daemon: datagrams from other segments, and reports of how they are.

Law: what a link brings is a datagram like any other: judged once, with a verdict, under the link's name; what was
accepted goes to local clients, onto our segments, and to the links but for the way that it came. What has been on its
way for longer than a copy may be stays on this host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from bccnd.bus.fanout import Client, Clients
from bccnd.core import frames
from bccnd.core.counters import SegmentCounters
from bccnd.core.ingress import Ingress
from bccnd.errors import BadFrame
from bccnd.native.inflight import InflightState

#: nanoseconds that a datagram may have waited for us at most; beyond that a clock was set
_MAX_WAIT_NS: Final = 60_000_000_000
#: seconds after which who does not report any more is taken to stand still
_SILENT: Final = 5.0


class GatewayLinks:
    """``names`` are those of links; ``broadcast`` takes a datagram to our segments, of which so many ``copies`` come
    back to us; ``read_report`` gives what a gateway tells of itself, or None for what makes no sense, and ``no_report``
    what is known of one that has told nothing."""

    def __init__(
        self,
        ingress: Ingress,
        clients: Clients,
        names: Sequence[str],
        read_report: Callable[[bytes], dict[str, Any] | None],
        no_report: Callable[[str], dict[str, Any]],
        broadcast: Callable[[bytes], object],
        *,
        copies: int,
        inflight: InflightState | None,
    ) -> None:
        self.counters = [SegmentCounters(name) for name in names]
        #: accepted, and too old to be passed on
        self.late = 0
        self._ingress = ingress
        self._clients = clients
        self._by_name = {counters.name: counters for counters in self.counters}
        self._read_report = read_report
        self._no_report = no_report
        self._broadcast = broadcast
        self._copies = copies
        self._inflight = inflight
        #: the last report of each gateway, who told it, and when
        self._reports: dict[str, tuple[Client, float, dict[str, Any]]] = {}
        #: gateways that are configured
        self.expected: list[str] = []

    def bring(self, payload: bytes) -> bool:
        """Take what a link has brought; False for what is no such thing."""
        try:
            name, way, received_ns, peer, datagram = frames.read_arrived(payload)
        except BadFrame:
            return False
        counters = self._by_name.get(name)
        if counters is None:
            return False
        waited = min(max(0, time.time_ns() - received_ns), _MAX_WAIT_NS)
        now = time.monotonic() - waited * 1e-9
        late = waited > self._ingress.max_age_ns
        if self._inflight is not None:
            self._inflight.say_when(now)
            if self._ingress.tracker_log is not None:
                self._ingress.tracker_log.serial = self._inflight.serial
        deliveries, accepted = self._ingress.feed_link(
            counters, way, datagram, peer, now, received_ns, late=late, copies=self._copies
        )
        if deliveries:
            self._clients.deliver(deliveries)
        if accepted and late:
            self.late += 1
        elif accepted:
            self._broadcast(datagram)
        return True

    # -- how gateways are

    def report(self, client: Client, text: bytes) -> bool:
        """A gateway tells how it is; False for what makes no sense."""
        report = self._read_report(text)
        if report is None:
            return False
        self._reports[report["gateway"]] = (client, time.monotonic(), report)
        return True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """What is known of each gateway that is configured or has reported: its last report, and if it is ``up``."""
        for name in dict.fromkeys([*self.expected, *self._reports]):
            if name not in self._reports:
                yield {**self._no_report(name), "up": False, "pid": 0}
                continue
            client, when, report = self._reports[name]
            dropped = dict(report["dropped"])
            if name in self._by_name:
                dropped["late"] += self.late + self._ingress.not_passed
            up = client.open and time.monotonic() - when < _SILENT
            yield {**report, "dropped": dropped, "up": up, "pid": client.peer.pid}
