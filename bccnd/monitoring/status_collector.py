"""Samples the daemon's counters for the rates and charts of the status page, and collects its data on request.

Invariant: a sample costs time in proportion to the number of counters, a page also to the rows that it shows; neither
grows with the number of sources.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from bccnd.bus.clients.receiver_listing import describe_client
from bccnd.core.observing.counter_history import SLOT, History, Rise
from bccnd.core.observing.top_channels import WINDOW, TopChannels
from bccnd.core.tracking.liveness import ALIVE, SILENT, STATE_NAMES, Change
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES
from bccnd.drop_catalog.drops import LOST
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.drop_counts import DropCount, count_drops
from bccnd.monitoring.status_findings import ONGOING, RECENT, find_problems, state_of
from bccnd.monitoring.take_snapshot import take_snapshot
from bccnd.snapshot import ChannelTraffic, Chart, ClientState, DropState, HostStatus, LogEvent, Snapshot, SourceLoss

#: seconds over which current rates are averaged
RATE_WINDOW: Final = 10.0
#: rows of a list
MAX_ROWS: Final = 20
MAX_CHANNELS: Final = 12
MAX_LINES: Final = 30
#: silent sources known by name; further ones are only counted
MAX_SILENT: Final = 1024
#: verdicts with which a datagram is delivered
DELIVERED: Final = list(NAMES[: LAST_ACCEPTED + 1])
#: counters that are charted
_CHARTS: Final = ("accepted", "lost", "dropped")


class StatusCollector:
    """Samples counters at intervals, and collects everything else when a page is requested."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon
        self._history = History(_CHARTS)
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
        self._record(take_snapshot(self._daemon))

    def _record(self, snapshot: Snapshot) -> dict[str, int]:
        now, losses = self._daemon.now(), self._daemon.sources.losses.by_src
        counts = dict(_counts(snapshot))
        self._history.sample(now, counts | {_source_key(src): lost for src, lost in losses.items()})
        self._top_channels.add(now, self._daemon.carried())
        return counts

    def collect(self) -> HostStatus:
        """Return the data of the page."""
        snapshot = take_snapshot(self._daemon)
        counts, now = self._record(snapshot), self._daemon.now()
        view = _HistoryView(self._history, now, snapshot.at)
        rates = {key: self._history.rate(key, now, count, RATE_WINDOW) for key, count in counts.items()}
        # The sort is stable: rows keep their places while severities stay the same.
        drops = sorted(_drops(snapshot, view), key=lambda one: (not one.serious, not one.now))
        sources, more_sources = self._sources(view)
        channels = list(self._channels(snapshot.at - snapshot.started))
        findings = list(find_problems(snapshot, drops, view.rise("deaths").last, now))
        return HostStatus(
            now=snapshot,
            state=state_of(findings),
            findings=findings,
            delivered=DELIVERED,
            rates={key: rate for key, rate in rates.items() if rate},
            charts=[self._chart(name, counts[name], rates[name], now) for name in _CHARTS],
            drops=drops,
            sources=sources,
            more_sources=more_sources,
            channels=channels,
            more_channels=len(self._top_channels) - len(channels),
            clients=self._clients(),
            events=[
                LogEvent(line.when, logging.getLevelName(line.level).lower(), line.event, line.text, line.remedy)
                for line in islice(self._daemon.recent_lines, MAX_LINES)
            ],
        )

    def _chart(self, name: str, total: int, rate: float, now: float) -> Chart:
        slots = self._history.chart(name, now)
        # The current slot is incomplete: the current rate stands for it.
        return Chart(name, total, [*(None if one is None else one / SLOT for one in slots[:-1]), rate])

    def _channels(self, uptime: float) -> Iterator[ChannelTraffic]:
        seconds = min(WINDOW, max(uptime, 1.0))
        for one in self._top_channels.busiest(MAX_CHANNELS):
            chan = one.chan.decode("utf-8", "backslashreplace")
            yield ChannelTraffic(chan, one.messages / seconds, one.messages, one.receivers)

    def _clients(self) -> list[ClientState]:
        worst = heapq.nlargest(
            MAX_ROWS,
            self._daemon.bus.clients.values(),
            key=lambda one: (one.queue.bytes, one.lost, one.subscriptions),
        )
        return [describe_client(one, ()) for one in worst]

    # -- sources

    def _sources(self, view: _HistoryView) -> tuple[list[SourceLoss], int]:
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

    def _troubled(self, view: _HistoryView) -> list[SourceLoss]:
        """Return sources that lose most, are silent or dead, the worst first; at most `MAX_ROWS` of each."""
        by_src, dead = self._daemon.sources.losses.by_src, self._daemon.liveness.dead

        def loss_rank(src: bytes) -> tuple[bool, int]:
            return view.rose_within(view.rise(_source_key(src)), ONGOING), by_src[src]

        losers = heapq.nlargest(MAX_ROWS, by_src, key=loss_rank)
        chosen = dict.fromkeys([*losers, *islice(self._silent, MAX_ROWS), *islice(reversed(dead), MAX_ROWS)])
        rows = [self._source(src, view) for src in chosen]
        rows = [row for row in rows if row.lost or row.missing or row.state != STATE_NAMES[ALIVE]]
        return sorted(rows, key=lambda row: _rank_source(row, view.at))

    def _source(self, src: bytes, view: _HistoryView) -> SourceLoss:
        daemon = self._daemon
        source, death = daemon.sources.get(src), daemon.liveness.dead.get(src)
        if source is None:
            heard = None if death is None else death.heard
            state, missing = "forgotten" if death is None else "dead", 0
        else:
            heard, missing = source.heard, source.missing.bit_count()
            died = death is not None and death.heard == source.heard
            state = "dead" if died else STATE_NAMES[source.state] or "no heartbeats"
        last_loss = view.rise(_source_key(src)).last
        lost = daemon.sources.losses.by_src.get(src, 0)
        return SourceLoss(src.decode("ascii"), state, view.time_of(heard), missing, lost, view.time_of(last_loss))


class _HistoryView:
    """The history of counters, as of ``now`` (monotonic) and ``at`` (Unix time)."""

    def __init__(self, history: History, now: float, at: float) -> None:
        self.now = now
        self.at = at
        self._history = history

    def time_of(self, when: float | None) -> float | None:
        """Convert a monotonic time to Unix time."""
        return None if when is None else self.at - (self.now - when)

    def rise(self, key: str) -> Rise:
        return self._history.rise(key) or Rise(None, None, None)

    def rose_within(self, rise: Rise, seconds: float) -> bool:
        return rise.last is not None and self.now - rise.last < seconds


def _counts(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    """Yield the counters that have rates or times, by the keys of `HostStatus.rates`."""
    accepted = dropped = 0
    for segment in snapshot.segments:
        yield f"received {segment.name}", segment.received
        yield f"sent {segment.name}", segment.sent
        for verdict, count in segment.verdicts.items():
            yield f"verdict {segment.name} {verdict}", count
        accepted += sum(segment.verdicts[verdict] for verdict in DELIVERED)
    for one in _drop_counts(snapshot):
        if one.total:
            yield _drop_key(one), one.total
            dropped += one.total if one.drop.serious and one.drop != LOST else 0
    yield "accepted", accepted
    yield "lost", snapshot.sources.lost
    yield "dropped", dropped
    yield "deaths", snapshot.sources.deaths
    yield "deliveries", snapshot.bus.deliveries
    yield "published", snapshot.bus.published


def _drop_counts(snapshot: Snapshot) -> Iterator[DropCount]:
    yield DropCount(LOST, "", snapshot.sources.lost)
    yield from count_drops(snapshot.drops)


def _drops(snapshot: Snapshot, view: _HistoryView) -> Iterator[DropState]:
    for one in _drop_counts(snapshot):
        if not one.total:
            continue
        key, drop = _drop_key(one), one.drop
        rise = view.rise(key)
        yield DropState(
            name=drop.name,
            kind=drop.family if drop.label else "",
            metric=drop.series,
            where=one.where,
            times=one.total,
            key=key,
            first=view.time_of(rise.first),
            since=view.time_of(rise.since),
            last=view.time_of(rise.last),
            serious=drop.serious,
            now=view.rose_within(rise, ONGOING),
            means=drop.means,
            remedy=drop.remedy,
        )


def _drop_key(one: DropCount) -> str:
    return f"drop {one.drop.family} {one.drop.name} {one.where}"


def _source_key(src: bytes) -> str:
    return f"source {src.decode('ascii')}"


def _rank_source(one: SourceLoss, now: float) -> tuple[int, float, float]:
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
