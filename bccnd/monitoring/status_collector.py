"""Collects the data of the status page, and samples the daemon's counters for its rates and charts.

Invariant: a sample costs time in proportion to the number of counters, a page also to the rows that it shows; neither
grows with the number of sources.
"""

from __future__ import annotations

import heapq
import logging
import os
import time
from collections.abc import Hashable, Iterable, Iterator
from itertools import islice
from typing import Final

from bccnd.bus.clients.client import Client as BusClient
from bccnd.core.observing.counter_history import SLOT, History, Rise
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.observing.top_channels import WINDOW, TopChannels
from bccnd.core.tracking.liveness import ALIVE, SILENT, STATE_NAMES, Change
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES
from bccnd.drops.catalog import LOST
from bccnd.log.handlers import LogLine, printable
from bccnd.monitoring.daemon_state import DaemonState, all_counters, gateway_starts
from bccnd.monitoring.drop_counts import DropCount, count_drops
from bccnd.monitoring.status_findings import ONGOING, RECENT, find_problems, state_of
from bccnd.monitoring.status_model import (
    ChannelRow,
    Chart,
    ClientRow,
    DropRow,
    EventRow,
    GatewayPeerRow,
    GatewayRow,
    SegmentRow,
    SourceRow,
    SourceTotals,
    Status,
    VerdictRow,
)
from bccnd.net.segment_opening import peer_name
from bccnd.version import VERSION

#: seconds over which current rates are averaged
RATE_WINDOW: Final = 10.0
#: rows of a list
MAX_ROWS: Final = 20
MAX_CHANNELS: Final = 12
MAX_LINES: Final = 30
#: silent sources known by name; further ones are only counted
MAX_SILENT: Final = 1024


class StatusCollector:
    """Samples counters at intervals, and collects everything else when a page is requested."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon
        self._history = History(("accepted", "lost", "dropped"))
        self._top_channels = TopChannels()
        #: silent sources by src, in the order in which they fell silent
        self._silent: dict[bytes, None] = {}

    def start(self) -> None:
        """Take the first sample, and list the sources that are silent already."""
        sources = self._daemon.sources
        if self._daemon.liveness.silent:
            self.update_sources((one.src, SILENT) for one in sources.all() if one.state == SILENT)
        self.sample()

    def update_sources(self, changes: Iterable[Change]) -> None:
        """Record which sources came alive, fell silent or died."""
        for src, state in changes:
            if state != SILENT:
                self._silent.pop(src, None)
            elif len(self._silent) < MAX_SILENT:
                self._silent[src] = None

    def sample(self) -> None:
        """Record the counters; to be called every `counter_history.STEP` seconds."""
        now = self._daemon.now()
        self._history.sample(now, dict(self._counts()))
        self._top_channels.add(now, self._daemon.carried())

    def _counts(self) -> Iterator[tuple[Hashable, int]]:
        """Yield the sampled counters, by key."""
        daemon = self._daemon
        accepted = 0
        for counters in all_counters(daemon):
            yield ("received", counters.name), counters.received
            yield ("sent", counters.name), counters.sent
            accepted += sum(counters.verdicts[: LAST_ACCEPTED + 1])
            for name, count in zip(NAMES, counters.verdicts, strict=True):
                if count:
                    yield ("verdict", counters.name, name), count
        yield "accepted", accepted
        yield "lost", daemon.sources.counted["lost"]
        dropped = 0
        for one in self._drop_counts():
            if one.total:
                yield _key(one), one.total
                dropped += one.total if one.drop.serious and one.drop.name != LOST.name else 0
        yield "dropped", dropped
        for src, lost in daemon.sources.losses.by_src.items():
            yield ("source", src), lost
        yield "deaths", daemon.liveness.counted["deaths"]
        yield "deliveries", daemon.bus.counters.deliveries
        yield "published", daemon.bus.counters.published

    def _drop_counts(self) -> Iterator[DropCount]:
        yield DropCount(LOST, "", self._daemon.sources.counted["lost"])
        yield from count_drops(self._daemon)

    # -- collecting

    def collect(self) -> Status:
        """Return the data of the page."""
        self.sample()
        daemon, now = self._daemon, self._daemon.now()
        view = _HistoryView(self._history, now, time.time())
        # The sort is stable: rows keep their places while severities stay the same.
        drops = sorted(self._drops(view), key=lambda one: (not one.serious, not one.now))
        sources, more_sources = self._sources(view)
        channels = self._top_channels.busiest(MAX_CHANNELS)
        clients, more_clients = self._clients()
        gateways, peers = self._gateways()
        died = view.rise("deaths")
        findings = list(
            find_problems(
                self._daemon,
                view.wall - self._daemon.started,
                drops,
                gateways,
                view.wall,
                died_recently=view.rose_within(died, RECENT),
                died_now=view.rose_within(died, ONGOING),
            )
        )
        bus = daemon.bus.counters
        return Status(
            host=printable(daemon.host),
            version=VERSION,
            pid=os.getpid(),
            started=daemon.started,
            at=view.wall,
            state=state_of(findings),
            findings=findings,
            charts=list(self._charts(view)),
            drops=drops,
            segments=list(self._segments(view)),
            verdicts=self._verdicts(view),
            source_counts=self._source_counts(now),
            sources=sources,
            more_sources=more_sources,
            channels=[
                ChannelRow(_text(one.chan), one.messages / min(WINDOW, max(now - self._began, 1.0)), *one[1:])
                for one in channels
            ],
            more_channels=len(self._top_channels) - len(channels),
            clients=clients,
            more_clients=more_clients,
            deliveries=bus.deliveries,
            deliveries_rate=view.rate("deliveries", bus.deliveries),
            published=bus.published,
            published_rate=view.rate("published", bus.published),
            queue_bytes=daemon.bus.queue_bytes,
            subscriptions=daemon.subscriptions,
            gateways=gateways,
            peers=peers[:MAX_ROWS],
            more_peers=max(0, sum(one.peers for one in gateways) - MAX_ROWS),
            events=[_event(line) for line, _ in zip(daemon.recent_lines, range(MAX_LINES), strict=False)],
        )

    @property
    def _began(self) -> float:
        return self._daemon.now() - max(0.0, time.time() - self._daemon.started)

    def _drops(self, view: _HistoryView) -> Iterator[DropRow]:
        for one in self._drop_counts():
            if not one.total:
                continue
            key, drop = _key(one), one.drop
            rise = view.rise(key)
            yield DropRow(
                name=drop.name,
                kind=drop.family if drop.label else "",
                metric=drop.series,
                where=printable(one.where),
                times=one.total,
                rate=view.rate(key, one.total),
                first=view.wall_time(rise.first),
                since=view.wall_time(rise.since),
                last=view.wall_time(rise.last),
                serious=drop.serious,
                now=view.rose_within(rise, ONGOING),
                means=drop.means,
                remedy=drop.remedy,
            )

    def _charts(self, view: _HistoryView) -> Iterator[Chart]:
        totals = dict(self._counts())
        for name, title, unit in (
            ("accepted", "Accepted", "datagrams"),
            ("lost", "Lost on the way", "messages"),
            ("dropped", "Dropped here", "drops"),
        ):
            slots = self._history.chart(name, view.now)
            rate = view.rate(name, totals[name])
            # The current slot is incomplete: the current rate stands for it.
            values = [*(None if one is None else one / SLOT for one in slots[:-1]), rate]
            yield Chart(name, title, unit, totals[name], rate, values)

    def _segments(self, view: _HistoryView) -> Iterator[SegmentRow]:
        segments = {one.options.name: one for one in self._daemon.segments}
        for counters in all_counters(self._daemon):
            segment = segments.get(counters.name)
            accepted = sum(counters.verdicts[: LAST_ACCEPTED + 1])
            refused = counters.received - accepted
            rates = [view.rate(("verdict", counters.name, name), count) for name, count in _pairs(counters)]
            passed = sum(rates[: LAST_ACCEPTED + 1])
            options = None if segment is None else segment.options
            yield SegmentRow(
                name=printable(counters.name),
                address="" if options is None else peer_name((options.address, options.port)),
                interface="" if options is None else printable(options.interface or "as routed"),
                received=counters.received,
                received_rate=view.rate(("received", counters.name), counters.received),
                accepted=accepted,
                accepted_rate=passed,
                refused=refused,
                refused_rate=sum(rates) - passed,
                kernel_drops=0 if segment is None else segment.kernel_drops(),
                sent=counters.sent,
                sent_rate=view.rate(("sent", counters.name), counters.sent),
                send_errors=sum(counters.errors.all().values()),
            )

    def _verdicts(self, view: _HistoryView) -> list[VerdictRow]:
        found = [
            VerdictRow(
                name=name,
                segment=printable(counters.name),
                accepted=number <= LAST_ACCEPTED,
                times=count,
                rate=view.rate(("verdict", counters.name, name), count),
                share=count / max(1, counters.received),
            )
            for counters in all_counters(self._daemon)
            for number, (name, count) in enumerate(_pairs(counters))
            if count
        ]
        return sorted(found, key=lambda one: -one.times)

    # -- sources

    def _source_counts(self, now: float) -> SourceTotals:
        sources, liveness = self._daemon.sources, self._daemon.liveness
        within = liveness.interval * liveness.rules.dead_after
        return SourceTotals(
            tracked=len(sources),
            alive=sources.alive(now, within),
            within=within,
            silent=liveness.silent,
            dead=len(liveness.dead),
            restarts=sources.counted["restarts"],
            missing=sources.count_missing(),
            lost=sources.counted["lost"],
        )

    def _sources(self, view: _HistoryView) -> tuple[list[SourceRow], int]:
        """Return the sources with problems, then the most recent ones; and how many with problems were left out."""
        troubled = self._troubled(view)
        worst, more = troubled[:MAX_ROWS], 0
        if len(troubled) > MAX_ROWS:
            daemon = self._daemon
            more = len({*daemon.sources.losses.by_src, *self._silent, *daemon.liveness.dead}) - MAX_ROWS
        listed = {row.src for row in worst}
        latest = (self._source(source.src, view) for source in self._daemon.sources.latest(2 * MAX_ROWS))
        well = (row for row in latest if row.src not in listed)
        return [*worst, *islice(well, MAX_ROWS - len(worst))], more

    def _troubled(self, view: _HistoryView) -> list[SourceRow]:
        """Return sources that lose most, are silent or dead, the worst first; at most `MAX_ROWS` of each."""
        by_src, dead = self._daemon.sources.losses.by_src, self._daemon.liveness.dead
        losers = heapq.nlargest(MAX_ROWS, by_src, key=lambda src: self._loss_rank(src, view))
        chosen = dict.fromkeys([*losers, *islice(self._silent, MAX_ROWS), *islice(reversed(dead), MAX_ROWS)])
        rows = [self._source(src, view) for src in chosen]
        rows = [row for row in rows if row.lost or row.missing or row.state != STATE_NAMES[ALIVE]]
        return sorted(rows, key=lambda row: _rank_source(row, view.wall))

    def _loss_rank(self, src: bytes, view: _HistoryView) -> tuple[bool, int]:
        return view.rose_within(view.rise(("source", src)), ONGOING), self._daemon.sources.losses.by_src[src]

    def _source(self, src: bytes, view: _HistoryView) -> SourceRow:
        daemon = self._daemon
        source, death = daemon.sources.get(src), daemon.liveness.dead.get(src)
        if source is None:
            heard = None if death is None else death.heard
            state, missing = "forgotten" if death is None else "dead", 0
        else:
            heard, missing = source.heard, source.missing.bit_count()
            died = death is not None and death.heard == source.heard
            state = "dead" if died else STATE_NAMES[source.state] or "no heartbeats"
        rise = view.rise(("source", src))
        lost = daemon.sources.losses.by_src.get(src, 0)
        return SourceRow(
            _text(src),
            state,
            view.wall_time(heard),
            missing,
            lost,
            view.wall_time(rise.since),
            view.wall_time(rise.last),
        )

    # -- clients, gateways

    def _clients(self) -> tuple[list[ClientRow], int]:
        clients = self._daemon.bus.clients
        worst = heapq.nlargest(
            MAX_ROWS, clients.values(), key=lambda one: (one.queue.bytes, one.lost, one.subscriptions)
        )
        return [self._client(one) for one in worst], len(clients) - len(worst)

    def _client(self, client: BusClient) -> ClientRow:
        limits, queue = self._daemon.bus.limits, client.queue
        return ClientRow(
            identity=_text(client.identity),
            program=_text(client.peer.program),
            uid=client.peer.uid,
            pid=client.peer.pid,
            queue_messages=queue.messages,
            queue_bytes=queue.bytes,
            fill=min(
                1.0, max(queue.messages / max(1, limits.queue.messages), queue.bytes / max(1, limits.queue.bytes))
            ),
            lost=client.lost,
            published=client.published,
            subscriptions=client.subscriptions,
            since=client.since,
        )

    def _gateways(self) -> tuple[list[GatewayRow], list[GatewayPeerRow]]:
        gateways, peers = [], []
        for report in self._daemon.links:
            name, up = report["gateway"], report["up"]
            gateways.append(
                GatewayRow(
                    name=name,
                    up=up,
                    pid=report["pid"] if up else 0,
                    peers=report["peers_connected"] if up else 0,
                    received=report["received"],
                    sent=report["sent"],
                    dropped=sum(report["dropped"].values()),
                    connects=report["connects"],
                    starts=gateway_starts(self._daemon, report),
                )
            )
            for peer in report["peers"][:MAX_ROWS] if up else ():
                numbers = [int(peer[key]) for key in ("received", "sent", "dropped", "queued")]
                since = float(peer["since"])
                peers.append(GatewayPeerRow(name, _peer_text(peer["peer"]), _peer_text(peer["name"]), since, *numbers))
        return gateways, peers


class _HistoryView:
    """The history of counters, as of ``now`` (monotonic) and ``wall`` (Unix time)."""

    def __init__(self, history: History, now: float, wall: float) -> None:
        self.now = now
        self.wall = wall
        self._history = history

    def wall_time(self, when: float | None) -> float | None:
        """Convert a monotonic time to Unix time."""
        return None if when is None else self.wall - (self.now - when)

    def rate(self, key: Hashable, count: int) -> float:
        return self._history.rate(key, self.now, count, RATE_WINDOW)

    def rise(self, key: Hashable) -> Rise:
        return self._history.rise(key) or Rise(None, None, None)

    def rose_within(self, rise: Rise, seconds: float) -> bool:
        return rise.last is not None and self.now - rise.last < seconds


def _key(one: DropCount) -> Hashable:
    return "drop", one.drop.family, one.drop.name, one.where


def _pairs(counters: SegmentCounters) -> Iterable[tuple[str, int]]:
    return zip(NAMES, counters.verdicts, strict=True)


def _rank_source(one: SourceRow, now: float) -> tuple[int, float, float]:
    """Return a sort key: ongoing losses first, then silent and recently dead sources, then the rest."""
    losing = one.lost_last is not None and now - one.lost_last < ONGOING
    recent = one.heard is not None and now - one.heard < RECENT
    if losing:
        rank = 0
    elif one.state == STATE_NAMES[SILENT]:
        rank = 1
    elif one.state == "dead" and recent:
        rank = 2
    else:
        rank = 3 if one.lost else 4
    return rank, -one.lost, -(one.heard or 0.0)


def _event(line: LogLine) -> EventRow:
    return EventRow(line.when, logging.getLevelName(line.level).lower(), line.event, line.text, line.remedy)


def _text(name: bytes) -> str:
    return printable(name.decode("utf-8", "backslashreplace"))


def _peer_text(name: object) -> str:
    """Make a name reported by a gateway printable and short: a remote peer may have chosen it."""
    return printable(str(name)[:256])
