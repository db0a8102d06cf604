"""Gathers what the status page shows.

Law: a sample is taken every few seconds whoever looks, and with each look, and costs what the counters are many;
looking costs no more than that and than the lists that are shown are long, and is done once for all who look within a
second. Nothing here changes what it looks at, but for the count of what channels have carried.
"""

from __future__ import annotations

import heapq
import logging
import os
import time
from collections.abc import Hashable, Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from bccnd.bus.fanout import Client as BusClient
from bccnd.core.counter_history import SLOT, History, Rise
from bccnd.core.counters import SegmentCounters
from bccnd.core.liveness import ALIVE, SILENT, STATE_NAMES, Change
from bccnd.core.top_channels import WINDOW, TopChannels
from bccnd.core.verdicts import LAST_ACCEPTED, NAMES
from bccnd.log.handlers import Line, printable
from bccnd.monitoring.drop_counts import Counted, counted
from bccnd.monitoring.drop_entry import Drop
from bccnd.monitoring.metrics import PREFIX, Observed, all_counters
from bccnd.monitoring.page_data import (
    LATELY,
    NOW,
    Channel,
    Chart,
    Client,
    Dropped,
    Event,
    Facts,
    Finding,
    Gateway,
    GatewayPeer,
    Segment,
    Source,
    Sources,
    Verdict,
    state_of,
)
from bccnd.net.udp import peer_name
from bccnd.version import VERSION

#: seconds of a rate that is called the present one
RATE: Final = 10.0
#: seconds that a gateway has to come up before somebody is told
COMES_UP: Final = 30.0
#: rows of a list that people read
ROWS: Final = 20
CHANNELS: Final = 12
#: lines of the log
LINES: Final = 30
#: silent sources that are known by name; beyond that they are counted
MAX_SILENT: Final = 1024

#: what was lost elsewhere: nobody here has dropped it
LOST: Final = Drop(
    "messages_lost",
    "messages_lost",
    "",
    True,
    "A message of some source that never arrived here: its number is missing in between, and the horizon is over.",
    "The sources below say of whom. If many hosts miss the same, look at the sender or its switch port; if only this "
    "one does, at its network card, its way and socket_drops.",
    "",
    "messages",
)


class Shown(Observed, Protocol):
    """The daemon's state, as far as it is shown to people."""

    @property
    def host(self) -> str: ...
    @property
    def started(self) -> float: ...
    @property
    def refused(self) -> str: ...
    @property
    def said(self) -> Iterable[Line]: ...
    def carried(self) -> list[tuple[bytes, int, int]]: ...


class Gatherer:
    """Keeps what takes time to know, and gathers the rest when somebody looks."""

    def __init__(self, daemon: Shown) -> None:
        self._daemon = daemon
        self._history = History(("accepted", "lost", "dropped"))
        self._busy = TopChannels()
        #: silent sources by src, as they were told of
        self._silent: dict[bytes, None] = {}

    def begin(self) -> None:
        """The daemon begins to serve: whoever was silent before it began is still so."""
        sources = self._daemon.sources
        if self._daemon.liveness.silent:
            for number in range(sources.shards()):
                self.hear((one.src, SILENT) for one in sources.shard(number) if one.state == SILENT)
        self.sample()

    def hear(self, changes: Iterable[Change]) -> None:
        """Sources have come alive, fallen silent or died."""
        for src, state in changes:
            if state != SILENT:
                self._silent.pop(src, None)
            elif len(self._silent) < MAX_SILENT:
                self._silent[src] = None

    def sample(self) -> None:
        now = self._daemon.now()
        self._history.sample(now, dict(self._counts()))
        self._busy.look(now, self._daemon.carried())

    def _counts(self) -> Iterator[tuple[Hashable, int]]:
        """All that is sampled, by key."""
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
        yield "lost", daemon.sources.lost
        dropped = 0
        for one in self._counted():
            if one.count:
                yield _key(one), one.count
                dropped += one.count if one.drop.serious and one.drop.name != LOST.name else 0
        yield "dropped", dropped
        for src, lost in daemon.sources.losers.items():
            yield ("source", src), lost
        yield "deaths", daemon.liveness.deaths
        yield "deliveries", daemon.bus.counters.deliveries
        yield "published", daemon.bus.counters.published

    def _counted(self) -> Iterator[Counted]:
        yield Counted(LOST, "", self._daemon.sources.lost)
        yield from (one for one in counted(self._daemon) if one.drop.name != LOST.name)

    # -- when somebody looks

    def facts(self) -> Facts:
        """All that is shown."""
        # What has happened since the last sample is part of it.
        self.sample()
        daemon, now = self._daemon, self._daemon.now()
        look = _Look(self._history, now, time.time())
        # Within the same urgency in the order in which they are listed, so that nothing jumps about.
        drops = sorted(self._drops(look), key=lambda one: (not one.serious, not one.now))
        sources, more_sources = self._sources(look)
        channels = self._busy.busiest(CHANNELS)
        clients, more_clients = self._clients()
        gateways, peers = self._gateways()
        findings = list(self._findings(look, drops, gateways))
        bus = daemon.bus.counters
        return Facts(
            host=printable(daemon.host),
            version=VERSION,
            pid=os.getpid(),
            started=daemon.started,
            at=look.wall,
            state=state_of(findings),
            findings=findings,
            charts=list(self._charts(look)),
            drops=drops,
            segments=list(self._segments(look)),
            verdicts=self._verdicts(look),
            source_counts=self._source_counts(now),
            sources=sources,
            more_sources=more_sources,
            channels=[
                Channel(_text(one.chan), one.messages / min(WINDOW, max(now - self._began, 1.0)), *one[1:])
                for one in channels
            ],
            more_channels=len(self._busy) - len(channels),
            clients=clients,
            more_clients=more_clients,
            deliveries=bus.deliveries,
            deliveries_rate=look.rate("deliveries", bus.deliveries),
            published=bus.published,
            published_rate=look.rate("published", bus.published),
            queue_bytes=daemon.bus.queue_bytes,
            subscriptions=daemon.subscriptions,
            gateways=gateways,
            peers=peers[:ROWS],
            more_peers=max(0, sum(one.peers for one in gateways) - ROWS),
            events=[_event(line) for line, _ in zip(daemon.said, range(LINES), strict=False)],
        )

    @property
    def _began(self) -> float:
        return self._daemon.now() - max(0.0, time.time() - self._daemon.started)

    def _drops(self, look: _Look) -> Iterator[Dropped]:
        for one in self._counted():
            if not one.count:
                continue
            key, drop = _key(one), one.drop
            rise = look.rise(key)
            label = f'{{{drop.label}="{drop.name}"}}' if drop.label else ""
            yield Dropped(
                name=drop.name,
                kind=drop.family if drop.label else "",
                metric=f"{PREFIX}{drop.family}_total{label}",
                where=printable(one.where),
                times=one.count,
                rate=look.rate(key, one.count),
                first=look.at(rise.first),
                since=look.at(rise.since),
                last=look.at(rise.last),
                serious=drop.serious,
                now=look.within(rise, NOW),
                means=drop.means,
                remedy=drop.remedy,
            )

    def _findings(self, look: _Look, drops: list[Dropped], gateways: list[Gateway]) -> Iterator[Finding]:
        daemon = self._daemon
        only = printable(daemon.segments[0].options.name) if len(daemon.segments) == 1 else ""
        for one in drops:
            lately = one.last is not None and look.wall - one.last < LATELY
            if one.serious and lately:
                where = f" on {one.where}" if one.where and one.where != only else ""
                yield Finding(f"{one.name}{where}", "drops", one.now)
        for gateway in gateways:
            if not gateway.up and look.wall - daemon.started > COMES_UP:
                yield Finding(f"gateway {gateway.name} is not there", "gateways", True)
        if daemon.liveness.silent:
            yield Finding(f"{_some(daemon.liveness.silent, 'source')} silent", "sources", True)
        died = look.rise("deaths")
        if look.within(died, LATELY):
            yield Finding("sources have died", "sources", look.within(died, NOW))
        if daemon.refused:
            yield Finding("the last reload was refused", "events", True)

    def _charts(self, look: _Look) -> Iterator[Chart]:
        totals = dict(self._counts())
        for name, title, unit in (
            ("accepted", "Accepted", "datagrams"),
            ("lost", "Lost on the way", "messages"),
            ("dropped", "Dropped here", "things"),
        ):
            slots = self._history.chart(name, look.now)
            rate = look.rate(name, totals[name])
            # The present slot is not over: what stands for it is the rate of now.
            values = [*(None if one is None else one / SLOT for one in slots[:-1]), rate]
            yield Chart(name, title, unit, totals[name], rate, values)

    def _segments(self, look: _Look) -> Iterator[Segment]:
        segments = {one.options.name: one for one in self._daemon.segments}
        for counters in all_counters(self._daemon):
            segment = segments.get(counters.name)
            accepted = sum(counters.verdicts[: LAST_ACCEPTED + 1])
            refused = counters.received - accepted
            rates = [look.rate(("verdict", counters.name, name), count) for name, count in _pairs(counters)]
            passed = sum(rates[: LAST_ACCEPTED + 1])
            options = None if segment is None else segment.options
            yield Segment(
                name=printable(counters.name),
                address="" if options is None else peer_name((options.address, options.port)),
                interface="" if options is None else printable(options.interface or "as routed"),
                received=counters.received,
                received_rate=look.rate(("received", counters.name), counters.received),
                accepted=accepted,
                accepted_rate=passed,
                refused=refused,
                refused_rate=sum(rates) - passed,
                kernel_drops=0 if segment is None else segment.kernel_drops(),
                sent=counters.sent,
                sent_rate=look.rate(("sent", counters.name), counters.sent),
                send_errors=sum(counters.send_errors.values()),
            )

    def _verdicts(self, look: _Look) -> list[Verdict]:
        found = [
            Verdict(
                name=name,
                segment=printable(counters.name),
                accepted=number <= LAST_ACCEPTED,
                times=count,
                rate=look.rate(("verdict", counters.name, name), count),
                share=count / max(1, counters.received),
            )
            for counters in all_counters(self._daemon)
            for number, (name, count) in enumerate(_pairs(counters))
            if count
        ]
        return sorted(found, key=lambda one: -one.times)

    # -- sources

    def _source_counts(self, now: float) -> Sources:
        sources, liveness = self._daemon.sources, self._daemon.liveness
        within = liveness.rules.interval * liveness.rules.dead_after
        return Sources(
            tracked=len(sources),
            alive=sources.alive(now, within),
            within=within,
            silent=liveness.silent,
            dead=len(liveness.dead),
            restarts=sources.restarts,
            missing=sources.missing,
            lost=sources.lost,
        )

    def _sources(self, look: _Look) -> tuple[list[Source], int]:
        """The worst sources, then those heard last, and how many of the former were left out."""
        sources, dead = self._daemon.sources, self._daemon.liveness.dead
        losers = heapq.nlargest(ROWS, sources.losers, key=lambda src: self._how_bad(src, look))
        chosen = dict.fromkeys([*losers, *islice(self._silent, ROWS), *islice(reversed(dead), ROWS)])
        rows = [self._source(src, look) for src in chosen]
        rows = [one for one in rows if one.lost or one.missing or one.state != STATE_NAMES[ALIVE]]
        worst = sorted(rows, key=lambda one: _worst_source(one, look.wall))[:ROWS]
        more = len({*sources.losers, *self._silent, *dead}) - len(worst) if len(rows) > ROWS else 0
        listed = {one.src for one in worst}
        well = (self._source(one.src, look) for one in sources.latest(2 * ROWS))
        worst += islice((one for one in well if one.src not in listed), ROWS - len(worst))
        return worst, more

    def _how_bad(self, src: bytes, look: _Look) -> tuple[bool, int]:
        return look.within(look.rise(("source", src)), NOW), self._daemon.sources.losers[src]

    def _source(self, src: bytes, look: _Look) -> Source:
        daemon = self._daemon
        source, death = daemon.sources.get(src), daemon.liveness.dead.get(src)
        if source is None:
            heard = None if death is None else death.heard
            state, missing = "forgotten" if death is None else "dead", 0
        else:
            heard, missing = source.heard, source.missing.bit_count()
            died = death is not None and death.heard == source.heard
            state = "dead" if died else STATE_NAMES[source.state] or "no heartbeats"
        rise = look.rise(("source", src))
        lost = daemon.sources.losers.get(src, 0)
        return Source(_text(src), state, look.at(heard), missing, lost, look.at(rise.since), look.at(rise.last))

    # -- clients, gateways

    def _clients(self) -> tuple[list[Client], int]:
        clients = self._daemon.bus.clients
        worst = heapq.nlargest(ROWS, clients.values(), key=lambda one: (one.queue.bytes, one.loss, one.subscriptions))
        return [self._client(one) for one in worst], len(clients) - len(worst)

    def _client(self, client: BusClient) -> Client:
        limits, queue = self._daemon.bus.limits, client.queue
        return Client(
            identity=_text(client.identity),
            program=_text(client.peer.program),
            uid=client.peer.uid,
            pid=client.peer.pid,
            queue_messages=queue.messages,
            queue_bytes=queue.bytes,
            fill=min(
                1.0, max(queue.messages / max(1, limits.queue_messages), queue.bytes / max(1, limits.queue_bytes))
            ),
            lost=client.loss,
            published=client.published,
            subscriptions=client.subscriptions,
            since=client.since,
        )

    def _gateways(self) -> tuple[list[Gateway], list[GatewayPeer]]:
        gateways, peers = [], []
        for report in self._daemon.links:
            name, up = report["gateway"], report["up"]
            program = self._daemon.programs.get(name)
            gateways.append(
                Gateway(
                    name=name,
                    up=up,
                    pid=report["pid"] if up else 0,
                    peers=report["peers_connected"] if up else 0,
                    received=report["received"],
                    sent=report["sent"],
                    dropped=sum(report["dropped"].values()),
                    connects=report["connects"],
                    starts=0 if program is None else program.starts,
                )
            )
            for peer in report["peers"][:ROWS] if up else ():
                numbers = [int(peer[key]) for key in ("received", "sent", "dropped", "queued")]
                since = float(peer["since"])
                peers.append(GatewayPeer(name, _told(peer["peer"]), _told(peer["name"]), since, *numbers))
        return gateways, peers


class _Look:
    """One look: when it is, and what the history says then."""

    def __init__(self, history: History, now: float, wall: float) -> None:
        self.now = now
        self.wall = wall
        self._history = history

    def at(self, when: float | None) -> float | None:
        """A moment of the monotonic clock by the one on the wall."""
        return None if when is None else self.wall - (self.now - when)

    def rate(self, key: Hashable, count: int) -> float:
        return self._history.rate(key, self.now, count, RATE)

    def rise(self, key: Hashable) -> Rise:
        return self._history.rise(key) or Rise(None, None, None)

    def within(self, rise: Rise, seconds: float) -> bool:
        return rise.last is not None and self.now - rise.last < seconds


def _key(one: Counted) -> Hashable:
    return "drop", one.drop.family, one.drop.name, one.where


def _pairs(counters: SegmentCounters) -> Iterable[tuple[str, int]]:
    return zip(NAMES, counters.verdicts, strict=True)


def _worst_source(one: Source, now: float) -> tuple[int, float, float]:
    """What goes on comes first, then what was lately, then the rest."""
    recent = one.lost_last is not None and now - one.lost_last < NOW
    lately = one.heard is not None and now - one.heard < LATELY
    if recent:
        rank = 0
    elif one.state == STATE_NAMES[SILENT]:
        rank = 1
    elif one.state == "dead" and lately:
        rank = 2
    else:
        rank = 3 if one.lost else 4
    return rank, -one.lost, -(one.heard or 0.0)


def _event(line: Line) -> Event:
    return Event(line.when, logging.getLevelName(line.level).lower(), line.event, line.text, line.remedy)


def _text(name: bytes) -> str:
    return printable(name.decode("utf-8", "backslashreplace"))


def _told(name: object) -> str:
    """What a gateway says of a peer, which strangers may have chosen."""
    return printable(str(name)[:256])


def _some(number: int, thing: str) -> str:
    return f"{number:,} {thing} is" if number == 1 else f"{number:,} {thing}s are"
