"""Rows that the daemon answers to `bccn sources`, `bccn list daemon` and `bccn trace`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from bccnd.core.receiving.datagram_trace import trace
from bccnd.core.tracking.liveness import STATE_NAMES
from bccnd.core.trust.integrity_algorithms import KeyUse
from bccnd.core.wire.verdicts import NAMES
from bccnd.fleet import view
from bccnd.fleet.cell_counters import MINUTES
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.key_use_times import KeyUseTimes
from bccnd.version import VERSION

#: rows of `bccn sources`
MAX_LISTED: Final = 10_000
#: receivers named by `bccn trace`; the others are counted
MAX_TRACED: Final = 100


class Listings:
    """Reads the state of ``daemon`` when a client asks."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon
        self._key_use_times = KeyUseTimes()

    def list_sources(self) -> Iterator[dict[str, Any]]:
        daemon, sources, dead = self._daemon, self._daemon.sources, self._daemon.liveness.dead
        # An unfinished listing holds only names: sources that expire meanwhile are freed, and left out.
        for src in [source.src for source in sources.latest(MAX_LISTED)]:
            source = sources.get(src)
            if source is None:
                continue
            died = source.src in dead and dead[source.src].heard == source.heard
            # A datagram from before the last reload was verified with a key that may be gone.
            verified = source.heard > daemon.keys_since
            yield {
                "src": source.src.decode("ascii"),
                "state": "dead" if died else STATE_NAMES[source.state],
                "silent_seconds": round(time.monotonic() - source.heard, 3),
                "last_seq": source.last,
                "epoch": source.epoch,
                "missing": source.missing.bit_count(),
                "key": daemon.ingress.checker.key_of(source.src, source.last) if verified else "",
            }
        for src in list(reversed(dead)):
            if src in dead and src not in sources:
                silent = round(time.monotonic() - dead[src].heard, 3)
                yield {"src": src.decode("ascii"), "state": "dead", "silent_seconds": silent}

    def list_gateways(self) -> Iterator[dict[str, Any]]:
        return iter(self._daemon.links)

    def list_keys(self) -> Iterator[dict[str, Any]]:
        keys = self.read_key_uses()
        now = time.monotonic()
        for key in keys:
            since = self._key_use_times.seconds_since(key.fingerprint, now)
            yield key._asdict() | {"last_used_s": None if since is None else round(since, 3)}

    def read_key_uses(self) -> list[KeyUse]:
        """Note when keys were used, and return them; call it often."""
        keys = self._daemon.ingress.checker.list_keys()
        self._key_use_times.read(keys, time.monotonic())
        return keys

    def by_name(self) -> dict[bytes, Callable[[], view.Rows]]:
        """Return all listings by name; those of the fleet since the start of each daemon, and of so many minutes."""
        recent = {b"fleet %d" % minutes: partial(self._list_fleet, minutes) for minutes in range(1, MINUTES + 1)}
        return {
            b"sources": self.list_sources,
            b"daemon": self.describe_daemon,
            b"gateways": self.list_gateways,
            b"keys": self.list_keys,
            b"fleet": partial(self._list_fleet, None),
            **recent,
            b"hosts": self._list_hosts,
            b"worst_links": self._list_worst_links,
        }

    def _list_fleet(self, minutes: int | None) -> view.Rows:
        reports = self._daemon.reports
        reports.refresh()
        return view.fleet(reports.matrix, reports.host, time.monotonic(), minutes)

    def _list_hosts(self) -> view.Rows:
        reports = self._daemon.reports
        reports.refresh()
        return iter(view.host_rows(reports.matrix, reports.host, time.monotonic()))

    def _list_worst_links(self) -> view.Rows:
        reports = self._daemon.reports
        reports.refresh()
        return view.worst_links(reports.matrix)

    def describe_daemon(self) -> Iterator[dict[str, Any]]:
        daemon, bus = self._daemon, self._daemon.bus
        counters = [segment.counters for segment in daemon.segments]
        yield {
            "version": VERSION,
            "host": daemon.host,
            "identity": daemon.identity.decode("ascii"),
            "pid": os.getpid(),
            "started": round(daemon.started, 3),
            "clients": len(bus.clients),
            "subscriptions": daemon.subscriptions,
            "sources": len(daemon.sources),
            "segments": [segment.options.name for segment in daemon.segments],
            "received": sum(one.received for one in counters),
            "sent": sum(one.sent for one in counters),
            "kernel_drops": sum(segment.kernel_drops() for segment in daemon.segments),
            "verdicts": {name: sum(one.verdicts[number] for one in counters) for number, name in enumerate(NAMES)},
            "missing": daemon.sources.count_missing(),
            "lost": daemon.sources.counted["lost"],
            "published": bus.counters.published,
            "deliveries": bus.counters.deliveries,
            "dropped": bus.counters.dropped.all(),
            "queue_bytes": bus.queue_bytes,
        }

    def trace(self, datagram: bytes) -> dict[str, Any]:
        """Return what would happen to a datagram that arrived now."""
        daemon = self._daemon
        traced = trace(datagram, "trace", time.monotonic(), ingress=daemon.ingress, routes=daemon.routes)
        clients = [daemon.bus.clients[fd].identity.decode("ascii") for fd in traced.receivers]
        return {
            "verdict": traced.verdict,
            "stages": [{"stage": name, "passed": passed, "finding": text} for name, passed, text in traced.stages],
            "receivers": clients[:MAX_TRACED],
            "more_receivers": max(0, len(clients) - MAX_TRACED),
        }
