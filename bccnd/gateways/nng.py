"""Links to bridges of other segments, over NNG BUS: the adapter between the daemon's bus and NNG.

Law: what comes by a link is given to the daemon as it is, with the number of the pipe and the time; what the daemon
gives goes to all pipes but that one. Nothing waits for anybody: what cannot be taken falls, and is counted. Nothing is
passed on that may be older than a copy may be: a peer that is behind is let go, and what was waiting for it with it.
While nobody is there at the other ends, nothing is asked of the daemon.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from bccnd.config import NngSettings
from bccnd.core import frames
from bccnd.core.bccn1 import MAX_UDP
from bccnd.errors import StartError
from bccnd.gateways.base import (
    REPORT,
    TAKEOVER,
    Hourly,
    Peer,
    Status,
    Supervisor,
    Voice,
    listen_patiently,
    say_bug,
    say_dropped,
)
from bccnd.gateways.certificates import read_tls
from bccnd.gateways.drop_texts import NNG_DROPPED
from bccnd.gateways.line import Line
from bccnd.gateways.links import Account, Backlog, Filter, Still
from bccnd.gateways.raw import ADDED, ADDRESS_TAKEN, GONE, ROOM, BusSocket, Counts, NngError, Pipe, Snapshot, Tls
from bccnd.gateways.tcp import connections, descriptors, hasten, set_descriptor_limit

NAME: Final = "nng"
#: messages taken from NNG before others have their turn
_TURN: Final = 64
#: messages that may wait for the daemon
_LINE_ROOM: Final = 8192
#: messages that the daemon may keep for us, at the most that is sensible
_BUS_ROOM: Final = 65_536
#: seconds for which nothing is done between two turns while messages come in a stream: some come together then, and
#: each takes half of what one takes that comes alone
_REST: Final = 0.001
#: seconds between two turns from which on it is no stream
_STREAM: Final = 0.004
#: seconds between two looks at what NNG and the kernel have in hand, while there are peers
_LOOK: Final = 0.25
#: seconds between two reports at least
_SOON: Final = 0.1
#: seconds within which NNG's threads have taken from the kernel what came while this process stood still
_DOUBT: Final = 0.5
#: seconds a daemon is away before that is said: a restart is no news
_AWAY: Final = 2.0
#: pipes that have gone and whose messages may still be waiting to be taken
_MAX_LEFT: Final = 1024
#: connections that have not said yet what they are and are left alone, for NNG to end after ten seconds
_MAX_STRANGERS: Final = 64
#: descriptors beyond those of peers: what strangers may take up, and what we need ourselves
_DESCRIPTORS: Final = 1024
#: seconds between two attempts to get what the daemon has refused
_AGAIN: Final = 5.0
#: what goes to links, up to what `frames.read_passed` takes apart
_PASSED: Final = frames.message(frames.LINK, b"")
_START: Final = len(_PASSED)


@dataclass
class _Link:
    """A pipe, and what is known of it."""

    pipe: Pipe
    account: Account
    since: float
    backlog: Backlog = field(default_factory=Backlog)
    sent_bytes: int = 0
    #: of what its account says was dropped, what stands in the status
    told: int = 0


class NngGateway:
    """``bus`` is where the daemon listens; names of files count from ``folder``; ``horizon`` is the age in seconds up
    to which a datagram may be passed on. Raises StartError for certificates that cannot be used."""

    def __init__(self, settings: NngSettings, bus: str, voice: Voice, *, folder: str, horizon: float) -> None:
        self._settings = settings
        self._bus = bus
        self._voice = voice
        self._horizon = horizon
        self._pems = None if settings.tls is None else read_tls(settings.tls, folder)
        self._out = Filter(settings.send, nameless=settings.nameless)
        self._in = Filter(settings.receive, nameless=settings.nameless)
        self.status = Status(NAME)
        self._links: dict[int, _Link] = {}
        self._left: OrderedDict[int, _Link] = OrderedDict()
        #: the number of the pipe, where there is but one
        self._only = 0
        #: of pipes that have gone
        self._gone = Counts()
        self._places = Counts()
        self._overrun = 0
        self._guarded: set[int] = set()
        self._strangers: set[int] = set()
        #: since when the daemon is away, and why; 0 while it is there or that was said
        self._away_since = 0.0
        self._why_away = ""
        self._refused_at = 0.0
        self._reported = 0.0
        self._changed = False
        self._tick: asyncio.TimerHandle | None = None
        self._rests = False
        self._turned = 0.0
        now = _now()
        self._hourly = Hourly(voice, self.status, time.monotonic())
        self._inward = Still(horizon / 4, ROOM, now, doubt=_DOUBT)
        self._outward = Still(horizon / 4, _BUS_ROOM, now)
        self._socket: BusSocket
        self._line: Line

    async def run(self, stop: asyncio.Event, supervisor: Supervisor | None = None) -> None:
        """As `Gateway.run`."""
        self._loop = loop = asyncio.get_running_loop()
        # What peers take up, and strangers within reason.
        set_descriptor_limit(self._settings.max_peers + 2 * len(self._settings.dial) + _DESCRIPTORS)
        bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._socket = BusSocket(
            send_room=self._settings.queue,
            max_accepted=self._settings.max_peers,
            wake=lambda: os.eventfd_write(bell, 1),
        )
        self._line = Line(
            self._bus,
            _LINE_ROOM,
            on_frames=self._on_frames,
            on_emptied=self._on_emptied,
            on_up=self._on_up,
            on_away=self._on_away,
        )
        received = self._socket.fileno()

        def on_bell() -> None:
            os.eventfd_read(bell)
            self._on_events()

        loop.set_exception_handler(self._on_bug)
        loop.add_reader(bell, on_bell)
        loop.add_reader(received, self._on_readable)
        try:
            for url in self._settings.listen:
                await listen_patiently(partial(self._listen, url), TAKEOVER, stop, supervisor)
            self._open()
            if supervisor is not None:
                supervisor.ready("serving")
            self._line.start()
            self._on_tick()
            await stop.wait()
        finally:
            if self._tick is not None:
                self._tick.cancel()
            loop.remove_reader(bell)
            loop.remove_reader(received)
            if self._line.waiting:
                self.status.drop("not_connected", len(self._line.waiting))
            self._line.close()
            self._hourly.end()
            # NNG lets what it is sending go out, for a moment; that is none of the loop's time any more.
            self._socket.close()
            os.close(bell)

    def _listen(self, url: str) -> None:
        try:
            self._socket.listen(url, self._tls(url, listens=True))
        except NngError as error:
            raise StartError(
                "address_taken" if error.reason == ADDRESS_TAKEN else "cannot_listen",
                f"cannot listen at {url}: {error.detail}",
                "see 'ss -tlnp' for who has the port, and 'ip address' for what this host is called",
            ) from error

    def _open(self) -> None:
        """Dial, and say where to and from where the links are."""
        settings = self._settings
        for url in settings.dial:
            try:
                self._socket.dial(url, self._tls(url, listens=False))
            except NngError as error:
                raise StartError(
                    "cannot_dial", f"cannot dial {url}: {error.detail}", "see gateways.nng.dial in bccnd.yaml(5)"
                ) from error
        for setting, urls in (("listen", settings.listen), ("dial", settings.dial)):
            plain = [url for url in urls if url.startswith("tcp://") and not _on_this_host(url)]
            if plain:
                self._voice.say(
                    ("plain", setting),
                    "doubtful_setting",
                    f"whoever reaches {', '.join(plain)} can read and send everything that the links carry",
                    remedy="use tls+tcp with certificates, or keep strangers away by other means (docs/links.md)",
                    setting=f"gateways.nng.{setting}",
                )
        self._voice.say(
            "ready",
            "gateway_ready",
            f"nng: listens at {', '.join(settings.listen) or 'nothing'}, dials {', '.join(settings.dial) or 'nobody'}",
            gateway=NAME,
        )

    def _tls(self, url: str, *, listens: bool) -> Tls | None:
        tls = self._settings.tls
        if not url.startswith("tls+tcp://") or tls is None or self._pems is None:
            return None
        asks = not listens or tls.require == "both"
        name = "" if listens else tls.server_name or _host(url)
        return Tls(*self._pems, asks=asks, name=name)

    # -- from NNG to the daemon

    def _on_readable(self) -> bool:
        """Something has come over links: a turn of it. True where nothing is left."""
        now = _now()
        age = self._inward.age(now)
        stamp = time.time_ns() - int(age * 1e9)
        given = self._loop.time() - age
        receive, send, refuses = self._socket.receive, self._line.send, self._in.refuses
        status, links = self.status, self._links
        for number in range(_TURN):
            message = receive()
            if message is None:
                self._inward.emptied(now)
                if number:
                    self._rest_soon()
                return True
            way, datagram = message
            status.received += 1
            status.received_bytes += len(datagram)
            link = links.get(way) or self._find(way)
            if link is None:
                status.drop("not_connected")
            elif len(datagram) > MAX_UDP:
                status.drop("oversize")
            elif reason := refuses(datagram):
                status.drop(reason)
            elif not send(frames.arrived(NAME, way, stamp, link.pipe.peer, datagram), given):
                status.drop("bus_full" if self._line.up else "not_connected")
        self._inward.taken(_TURN, now)
        return False

    def _rest_soon(self) -> None:
        """All that there was is done: rest, once others have had their turn."""
        if not self._rests:
            self._rests = True
            self._loop.call_soon(self._rest)

    def _rest(self) -> None:
        self._rests = False
        now = time.monotonic()
        if now - self._turned < _STREAM:
            time.sleep(_REST)  # of this process everything else can wait for so long as well
            now = time.monotonic()
        self._turned = now

    def _find(self, way: int) -> _Link | None:
        """Who has sent a message, where that is not known yet or has gone already."""
        self._on_events()
        return self._links.get(way) or self._left.get(way)

    # -- from the daemon to NNG

    def _on_frames(self, packet: list[bytes]) -> None:
        now = _now()
        late = self._outward.age(now) > self._horizon
        self._outward.taken(len(packet), now)
        send, refuses, status = self._socket.send, self._out.refuses, self.status
        for frame in packet:
            if not frame.startswith(_PASSED):
                self._on_control(frame)
                continue
            way, datagram = frames.read_passed(frame[_START:])
            if way and way == self._only:  # there is nobody else
                continue
            if late:
                status.drop("late")
            elif reason := refuses(datagram):
                status.drop(reason)
            else:
                send(way, datagram)

    def _on_emptied(self) -> None:
        self._outward.emptied(_now())
        self._rest_soon()

    def _on_control(self, frame: bytes) -> None:
        verb, key, payload = frames.read(frame)
        if verb != frames.CMSG:
            return
        if key == frames.GATEWAY:
            self._line.heard()
            self._away_since, self._why_away = 0.0, ""
        elif key == frames.GAP and payload.isdigit():
            self.status.drop("slow", int(payload))
        elif key == frames.ERROR and frames.LINK in payload:
            if not self._refused_at:
                self._voice.say(
                    "refused",
                    "gateway_refused",
                    f"the daemon at {self._bus} does not give us what passes ({payload.decode('ascii', 'replace')})",
                    remedy="run this as root or in the daemon's group, or set access: [{user: NAME, link: true}]",
                    gateway=NAME,
                    reason="not_permitted",
                )
            self._line.refused(payload.partition(b" ")[2])
            self._refused_at = self._loop.time()

    def _on_up(self) -> None:
        """A daemon is there. What waits for it may have become too old."""
        self._outward.emptied(_now())
        self._refused_at = 0.0
        self._forget()
        self._report()

    def _on_away(self, why: str) -> None:
        if not self._why_away:
            self._away_since, self._why_away = self._loop.time(), why

    def _say_away(self, now: float) -> None:
        if self._away_since and now - self._away_since > _AWAY:
            self._away_since = 0.0
            why = self._why_away
            self._voice.say(
                "away",
                "daemon_away",
                f"the daemon at {self._bus} is away: {why}; links stay, nothing goes over them until it is back",
                remedy="systemctl status bccnd",
                reason=why,
            )

    def _forget(self) -> None:
        old = self._line.forget(self._loop.time() - self._horizon)
        if old:
            self.status.drop("not_connected", old)

    # -- peers

    def _on_events(self) -> None:
        events, before = self._socket.events, len(self._links)
        if not events:
            return
        added = False
        while events:
            event = events.popleft()
            if event.what == ADDED:
                self._add(event)
                added = True
            elif event.what == GONE:
                self._remove(event)
            else:
                self.status.drop("too_many_peers")
                self._voice.say(
                    ("refused", event.peer),
                    "peer_refused",
                    f"nng: {event.peer} was turned away at {event.place}: there are {self._settings.max_peers} peers",
                    remedy="raise gateways.nng.max_peers, if that is too few",
                    gateway=NAME,
                    peer=event.peer,
                    reason="too_many_peers",
                    drop="too_many_peers",
                )
        self._only = next(iter(self._links)) if len(self._links) == 1 else 0
        if self._links and not before:
            now = _now()
            self._inward.emptied(now)
            self._outward.emptied(now)
        self._ask()
        if added:
            self._guard()
        self._changed = True
        if self._loop.time() - self._reported > _SOON:  # else with the next look: there may be thousands of them
            self._count(self._socket.snapshot())
            self._report()
        self._schedule()

    def _ask(self) -> None:
        """Hold what is needed: nothing without peers, and what links bring only where it can go on over another."""
        wanted = frames.LINK if len(self._links) > 1 else frames.LINK_HERE if self._links else b""
        if wanted:
            self._line.subscribe(wanted)
        for pattern in (frames.LINK, frames.LINK_HERE):
            if pattern != wanted:
                self._line.unsubscribe(pattern)

    def _add(self, event: Pipe) -> None:
        account = Account(self._settings.queue, event.handed)
        self._links[event.number] = _Link(event, account, time.time())
        self.status.connects += 1
        how = "has connected to" if event.listens else "was reached at"
        text = f"nng: {event.peer} {how} {event.place}"
        self._voice.say(("here", event.peer), "peer_connected", text, gateway=NAME, peer=event.peer)

    def _remove(self, event: Pipe) -> None:
        link = self._links.pop(event.number, None)
        if link is None:
            return
        link.account.end(event.handed, event.sent, event.received)
        link.sent_bytes = event.sent_bytes
        self._tell_dropped(link)
        for name, value in (("sent", event.sent), ("sent_bytes", event.sent_bytes), ("received", event.received)):
            self._gone.numbers[name] = self._gone[name] + value
        self._left[event.number] = link
        if len(self._left) > _MAX_LEFT:
            self._left.popitem(last=False)
        again = "" if event.listens else "; it is dialled again"
        text = f"nng: {event.peer} at {event.place} has gone{again}"
        self._voice.say(("gone", event.peer), "peer_gone", text, gateway=NAME, peer=event.peer)

    def _tell_dropped(self, link: _Link) -> None:
        if link.account.dropped > link.told:
            self.status.drop("queue_full", link.account.dropped - link.told)
            link.told = link.account.dropped

    def _on_bug(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        say_bug(self._voice, NAME, context)

    # -- from time to time

    def _schedule(self) -> None:
        """Look at things often while there are peers."""
        if self._tick is not None and self._tick.when() - self._loop.time() > _LOOK:
            self._tick.cancel()
            self._tick = self._loop.call_later(_LOOK, self._on_tick)

    def _on_tick(self) -> None:
        self._tick = self._loop.call_later(_LOOK if self._links else REPORT, self._on_tick)
        snapshot = self._socket.snapshot()
        if self._on_readable():
            self._count_overrun(snapshot)
        # Whether there is anything is looked at here, too: for how long there was nothing says how old it may be.
        self._line.read()
        if not self._line.up:
            self._forget()
        if self._links:
            self._look(snapshot)
        now = self._loop.time()
        if self._changed or now - self._reported >= REPORT - _LOOK / 2:
            self._count(snapshot)
            self._report()
            self._watch_strangers()
            if self._settings.dial:
                hasten()
            if self._refused_at and now - self._refused_at > _AGAIN:
                self._line.again()
            say_dropped(self._voice, self.status, NNG_DROPPED)
            self._hourly.look(time.monotonic())
            self._say_away(now)

    def _look(self, snapshot: Snapshot) -> None:
        """See what waits for whom, and let those go who are behind."""
        flows = {one.peer + one.local: one.flow() for one in connections() if one.peer}
        now = _now()
        for number, link in list(self._links.items()):
            counts = snapshot.pipes.get(number)
            if counts is None:
                continue
            handed = self._socket.handed - self._socket.spared.get(number, 0)
            flow = flows.get(link.pipe.peer + link.pipe.local)
            sent, received = counts["tx_msgs"], counts["rx_msgs"]
            link.account.look(handed, sent, received, now, idle=flow is not None and flow.given == flow.gone)
            link.sent_bytes = counts["tx_bytes"]
            self._tell_dropped(link)
            if flow is None:  # no TCP: of other ways on this host the kernel does not tell what it has in hand
                continue
            link.backlog.look(now, *flow)
            queued, sending = link.account.behind(now), link.backlog.age(now)
            if queued > self._horizon / 4 or sending > self._horizon / 2:
                self.status.drop("slow")
                self._voice.say(
                    ("ended", link.pipe.peer),
                    "peer_ended",
                    f"nng: {link.pipe.peer} at {link.pipe.place} is {queued + sending:.1f} s behind: the link is ended "
                    "and what waits for it is thrown away",
                    remedy="see whether the way there and the other end can take what is sent, or send less (filters)",
                    gateway=NAME,
                    peer=link.pipe.peer,
                    reason="slow",
                    drop="slow",
                )
                self._socket.end(number)

    def _count(self, snapshot: Snapshot) -> None:
        """Bring totals into the status that only NNG knows."""
        status, live = self.status, [link.account for link in self._links.values()]
        status.sent = self._gone["sent"] + sum(account.sent for account in live)
        status.sent_bytes = self._gone["sent_bytes"] + sum(link.sent_bytes for link in self._links.values())
        for name, reason in (("proto", "malformed"), ("auth", "untrusted")):
            grown = snapshot.places[name] - self._places[name]
            if grown > 0:
                status.drop(reason, grown)
                self._places.numbers[name] = snapshot.places[name]

    def _count_overrun(self, snapshot: Snapshot) -> None:
        """What NNG had counted when there was more to be taken, and we have not got, had no room there."""
        counted = self._gone["received"] + sum(counts["rx_msgs"] for counts in snapshot.pipes.values())
        overrun = counted - self.status.received
        if overrun > self._overrun:
            self.status.drop("slow", overrun - self._overrun)
            self._overrun = overrun

    def _report(self) -> None:
        """Tell the daemon how we are."""
        self._reported = self._loop.time()
        self._changed = False
        self.status.peers = [
            Peer(
                *(link.pipe.peer, link.pipe.place, link.since),
                *(link.account.received, link.account.sent, link.account.dropped),
            )
            for link in self._links.values()
        ]
        self._line.tell(frames.control(frames.GATEWAY, self.status.report()))

    # -- what strangers do

    def _guard(self) -> None:
        """Have the kernel watch over connections that it was not told about yet."""
        seen = set()
        for one in connections():
            seen.add(one.inode)
            if one.peer and one.inode not in self._guarded:
                with suppress(OSError):
                    one.guard(self._horizon)
        self._guarded = seen

    def _watch_strangers(self) -> None:
        """Where very many are connected and do not say what they are, cut those off that have had their time."""
        places = len(self._settings.listen) + 2 * len(self._settings.dial)
        if len(descriptors()) <= len(self._links) + places + _MAX_STRANGERS:
            self._strangers.clear()
            return
        known = {link.pipe.peer + link.pipe.local for link in self._links.values()}
        ports, strangers = set(), set()
        for one in connections():
            if not one.peer:
                ports.add(one.local.rpartition(":")[2])
            elif one.peer + one.local not in known:
                strangers.add(one.inode)
        for one in connections():
            if one.inode in strangers and one.local.rpartition(":")[2] not in ports:
                strangers.discard(one.inode)  # we have dialled
            elif one.inode in strangers and one.inode in self._strangers:
                one.cut()
                self.status.drop("no_id")
        self._strangers = strangers


def _now() -> float:
    """Seconds of a clock that goes on while this host sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _host(url: str) -> str:
    """The host that a URL names, without brackets."""
    return url.partition("://")[2].rpartition(":")[0].removeprefix("[").removesuffix("]")


def _on_this_host(url: str) -> bool:
    host = _host(url)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
