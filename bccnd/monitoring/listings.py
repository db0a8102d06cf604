"""Rows that the daemon answers to `bccn sources`, `bccn list daemon` and `bccn trace`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from bccnd.core.receiving.datagram_trace import trace
from bccnd.core.tracking.liveness import STATE_NAMES
from bccnd.core.trust.integrity_algorithms import KeyUse
from bccnd.fleet import view
from bccnd.fleet.cell_counters import MINUTES
from bccnd.fleet.matrix import FleetMatrix
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.key_use_times import KeyUseTimes
from bccnd.monitoring.take_snapshot import list_gateways, summarize, take_snapshot
from bccnd.snapshot import SourceState

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
            row = SourceState(
                source.src.decode("ascii"),
                "dead" if died else STATE_NAMES[source.state],
                round(time.monotonic() - source.heard, 3),
                last_seq=source.last,
                epoch=source.epoch,
                missing=source.missing.bit_count(),
                key=daemon.ingress.checker.key_of(source.src, source.last) if verified else "",
            )
            yield _known(row)
        for src in list(reversed(dead)):
            if src in dead and src not in sources:
                yield _known(SourceState(src.decode("ascii"), "dead", round(time.monotonic() - dead[src].heard, 3)))

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

    def by_name(self) -> dict[bytes, Callable[[], Iterable[object]]]:
        """Return all listings by name; those of the fleet since the start of each daemon, and of so many minutes."""
        recent = {
            b"fleet %d" % minutes: partial(self._list_fleet, partial(view.fleet, minutes=minutes))
            for minutes in range(1, MINUTES + 1)
        }
        return {
            b"sources": self.list_sources,
            b"daemon": lambda: [summarize(take_snapshot(self._daemon))],
            b"gateways": partial(list_gateways, self._daemon),
            b"keys": self.list_keys,
            b"fleet": partial(self._list_fleet, view.fleet),
            **recent,
            b"hosts": partial(self._list_fleet, view.host_rows),
            b"worst_links": partial(self._list_fleet, lambda matrix, _own, _now: view.worst_links(matrix)),
        }

    def _list_fleet(self, list_rows: Callable[[FleetMatrix, str, float], Iterable[object]]) -> Iterable[object]:
        reports = self._daemon.reports
        reports.refresh()
        return list_rows(reports.matrix, reports.host, time.monotonic())

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


def _known(source: SourceState) -> dict[str, Any]:
    """Return the row of a source, without the fields that are None."""
    return {name: value for name, value in vars(source).items() if value is not None}
