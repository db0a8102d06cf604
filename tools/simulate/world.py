"""The scheduler: one source of chance, one virtual clock, and events in order until the time is up.

After each event the hosts are stepped until nothing is left to do at this moment; then it is worked out what each
client has to get of what they have processed.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tools.simulate import interposer
from tools.simulate.clients import Client, Publish
from tools.simulate.datagrams import Datagram
from tools.simulate.host import Host
from tools.simulate.network import Arrival, Network
from tools.simulate.observers import Gateway, Observer, Tap
from tools.simulate.sources import MAY, MUST, NOT, Rules, SourceModel
from tools.simulate.violation import Violation

#: when the simulation begins: seconds since the boot, and nanoseconds since 1970
BOOT: Final = 1000.0
EPOCH_NS: Final = 1_770_000_000_000_000_000
#: seconds that a round of a loop takes
TURN: Final = 2e-6

#: messages of local programs that a round may bring, so that a client which reads after each round loses none
AT_ONCE: Final = 600
#: messages of an input, which is a batch of datagrams or a turn of a client, with a heartbeat behind it; and of those
#: that gather for a client in batch mode
INPUT: Final = 64 + 1
GATHERED: Final = 256
#: what a client may miss that the daemon would have disconnected after its end
_UNSEEN: Final = 1 << 30
#: lines of the history that a failure shows
_HISTORY: Final = 40
#: events of the log that tell of a bug
_BUGS: Final = ("internal_error",)


class World:
    """A fleet of ``count`` hosts with ``settings``, in ``folder``; ``seed`` decides everything."""

    def __init__(self, seed: int, folder: Path, count: int, settings: dict[str, Any], first_port: int) -> None:
        self.rng = random.Random(seed)
        self.history: deque[str] = deque(maxlen=_HISTORY)
        self.digest = hashlib.sha256()
        self.events = 0
        self.injected: Counter[str] = Counter()
        self.settings = settings
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        #: numbers of messages by sender, and of processes
        self.serials: Counter[bytes] = Counter()
        self.pids = itertools.count(1_000_001)
        interposer.set_clocks(int(BOOT * 1e9), EPOCH_NS)
        dedup = settings["dedup"]
        self.rules = Rules(dedup["sanity"], dedup["horizon"], dedup["late"] == "deliver", dedup["linked"])
        ports = [first_port + 2 * number for number in range(count)]
        self.hosts = [
            Host(f"host{number}", folder / f"host{number}", port, port + 1, settings)
            for number, port in enumerate(ports)
        ]
        self.network = Network(self)
        self.clients: dict[str, list[Client]] = {host.name: [] for host in self.hosts}
        #: messages of which it is not known yet what became of them: their channels, by host and token
        self.in_flight: dict[str, dict[bytes, bytes]] = {host.name: {} for host in self.hosts}
        self._flying: dict[str, Counter[bytes]] = {host.name: Counter() for host in self.hosts}
        #: what daemons have broadcast and not yet read back, with the number of the event
        self._looping: dict[str, list[tuple[Datagram, int]]] = {host.name: [] for host in self.hosts}
        self._unsure: dict[str, list[tuple[bytes, bytes, int]]] = {host.name: [] for host in self.hosts}
        self.models: dict[tuple[str, bytes], SourceModel] = {}
        #: pids whose connections the last end of a host has kept
        self.kept: dict[str, set[int]] = {host.name: set() for host in self.hosts}
        #: when a host was last disturbed by something that delays what it sends
        self.disturbed: dict[str, float] = {host.name: 0.0 for host in self.hosts}
        #: each datagram of a daemon, and when it was broadcast, by host, src and seq
        self.broadcasts: dict[tuple[str, bytes, int], tuple[Datagram, list[float]]] = {}
        #: the highest number that a host has used, and that before its last crash
        self._highest: Counter[str] = Counter()
        self._floor: Counter[str] = Counter()
        #: hosts whose programs have published more at once than a client that reads can get
        self.overrun: set[str] = set()
        #: messages of clients that have left since their host was last at rest
        self._left: Counter[str] = Counter()
        #: crashes since the last rest, by host, and starts that were killed
        self.crashed: Counter[str] = Counter()
        self.killed_starts: Counter[str] = Counter()
        #: whether the wall clock was set since the last rest
        self.clock_was_set = False
        #: sources of which it is not known what the daemon knows, as datagrams of them were waiting at a crash
        self._doubtful: dict[str, set[bytes]] = {host.name: set() for host in self.hosts}
        self._handler = _LogWatcher(self)
        logging.getLogger("bccnd").addHandler(self._handler)
        #: called when a daemon has ended
        self.on_down: Callable[[Host], None] = lambda _host: None

    def any_host(self, *, descriptors: bool = True) -> Host | None:
        """Return a host whose daemon runs; with ``descriptors`` one that can open more."""
        up = [host for host in self.hosts if host.alive and not host.stalled]
        up = [host for host in up if not (descriptors and host.out_of_descriptors)]
        return self.rng.choice(up) if up else None

    # -- time

    @property
    def now(self) -> float:
        """Seconds since the boot."""
        return float(interposer.mono_ns()) / 1e9

    @property
    def wall(self) -> float:
        """Seconds since 1970."""
        return float(interposer.wall_ns()) / 1e9

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        ns = max(0, int(seconds * 1e9))
        interposer.set_clocks(interposer.mono_ns() + ns, interposer.wall_ns() + ns)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock."""
        self.clock_was_set = True
        interposer.set_clocks(interposer.mono_ns(), interposer.wall_ns() + int(seconds * 1e9))
        for model in self.models.values():
            model.unsure = True

    def at(self, delay: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._numbers), call))

    def note(self, what: str) -> None:
        """Add an event to the history and to the digest."""
        line = f"{self.events:7d} {self.now:12.4f} {what}"
        self.history.append(line)
        self.digest.update(line.encode())

    def run(self, seconds: float) -> None:
        """Go on for so many seconds."""
        end = self.now + seconds
        while True:
            timers = [timer for host in self.hosts if (timer := host.next_timer) is not None]
            when = min([end, *timers, *(one[0] for one in self._heap[:1])])
            # Beyond what a double of seconds can tell.
            self.advance(when - self.now + 1e-6)
            while self._heap and self._heap[0][0] <= self.now:
                self.events += 1
                heapq.heappop(self._heap)[2]()
                self.settle()
            self.settle()
            if self.now >= end:
                return

    def settle(self) -> None:
        """Step the hosts until nothing is left to do at this moment."""
        moved = True
        while moved:
            moved = False
            for host in self.hosts:
                if host.is_ready(self.now):
                    self._turn(host)
                    moved = True
        self._check_log()
        for host in self.hosts:
            if host.alive and not host.stalled:
                self._left[host.name] = 0
                host.count_round(moved=True)
                self._resolve(host)

    def _turn(self, host: Host) -> None:
        numbers = {client.number: client.peer.pid for client in host.serving.bus.clients.values()}
        if self._left[host.name] + sum(client.unconfirmed for client in self.clients[host.name]) > AT_ONCE:
            self.overrun.add(host.name)
        host.turn()
        if host.alive:
            host.count_round(moved=False)
        self.advance(TURN)
        served = interposer.calls() > 1
        if not host.alive:
            self.note(f"{host.name} is down")
            self.kept[host.name] = {pid for number, pid in numbers.items() if host.store.holds(f"client-{number}") == 2}
            self.disturbed[host.name] = self.now
            host.out_of_descriptors = False
        if served or not host.alive:
            self.network.collect(host.name)
            self.serve_clients(host)
        if not host.alive:
            self.went_down(host, numbers.values())
            self.on_down(host)

    def went_down(self, host: Host, pids: Iterable[int] = ()) -> None:
        """A daemon with clients of these pids has ended: cleanly, or what it held and knew is lost."""
        name = host.name
        host.crashed = not host.store.has_image
        if not host.crashed:
            return
        self.note(f"{name} has crashed")
        self.crashed[name] += 1
        self._floor[name] = self._highest[name] if host.store.holds("host") else 0
        pids = {*pids, *host.held}
        for client in list(self.clients[name]):
            if client.pid in pids:
                self._lose_held(host, client)
        # What was passed on for links comes back as new. So may its own, which it knows by the time, if that was set.
        port = self.network.ports[name]
        known = [one for one in self._looping[name] if self._is_own(host, one[0]) and not self.clock_was_set]
        for datagram, step in self._looping[name]:
            if (datagram, step) not in known:
                self.fly(host, datagram.token, datagram.chan)
                port.arrivals.append(Arrival(datagram, self.now, step))
        self._looping[name] = known
        port.arrivals = deque(one._replace(before_crash=True) for one in port.arrivals)
        self._doubtful[name] |= {one.datagram.src for one in port.arrivals}
        for key in [key for key in self.models if key[0] == name and key[1] not in self._doubtful[name]]:
            del self.models[key]

    def _lose_held(self, host: Host, client: Client) -> None:
        """A client may miss what the daemon held for it. One with a request under way does not know whether that was
        processed, and leaves."""
        if not client.settled:
            self.note(f"{client.name} leaves with a request under way")
            self.remove(client)
            return
        held = host.held.get(client.pid, _UNSEEN)
        if client.plain and host.waited is not None and host.name not in self.overrun:
            waited, most = host.waited.get(client.pid, 0), GATHERED if client.batched else INPUT
            if held > waited + most:
                raise Violation(f"{client.name} misses {held} messages by a crash, of which {waited} had waited")
        client.ledger.crash(held + host.blocked)

    def _is_own(self, host: Host, datagram: Datagram) -> bool:
        return datagram.src.startswith(host.name.encode() + b"/")

    # -- what clients get

    def serve_clients(self, host: Host) -> None:
        """Let the clients of a host send and receive."""
        for client in list(self.clients[host.name]):
            client.push()
            for publish in client.read():
                self._confirmed(host, publish)
            if not client.open:
                self._lost_connection(host, client)

    def _check_log(self) -> None:
        if self._handler.bug:
            raise Violation(f"a daemon has logged a bug: {self._handler.bug}")

    def _lost_connection(self, host: Host, client: Client) -> None:
        self._check_log()
        self.note(f"{client.name} has lost its connection")
        if client.settled and not client.may_end and not host.store.refused:
            if client.pid in self.kept[host.name] and (not host.alive or self.now < self.disturbed[host.name] + 1.0):
                raise Violation(f"{client.name} has lost its connection, which a restart keeps")
            if host.alive and self.now > self.disturbed[host.name] + 1.0:
                raise Violation(f"{client.name} was disconnected, and has not chosen to be")
        self.remove(client)

    def remove(self, client: Client) -> None:
        """Close a client; nobody knows what becomes of what it has sent last."""
        client.close()
        name = client.host.name
        self.clients[name].remove(client)
        pending = [one for some in client.published.values() for one in some] + client.unsynced
        self._unsure[name] += [(one.token, one.channel, one.step) for one in pending]
        self._left[name] += len(pending)

    def fly(self, host: Host, token: bytes, channel: bytes) -> None:
        """A message is on its way into a host."""
        self.in_flight[host.name][token] = channel
        self._flying[host.name][token] += 1

    def _land(self, name: str, token: bytes) -> None:
        flying = self._flying[name]
        flying[token] -= 1
        if flying[token] <= 0:
            del flying[token]
            self.in_flight[name].pop(token, None)

    def _confirmed(self, host: Host, publish: Publish) -> None:
        """A daemon has processed what one of its clients has published."""
        for client in self.clients[host.name]:
            if isinstance(client, Observer):
                client.address(publish.channel)
                continue
            wants = client.wants(publish.channel, publish.step)
            if wants == NOT or (client is publish.publisher and not client.echo):
                client.ledger.not_expected(publish.token, "it was for others")
            else:
                client.ledger.expect(publish.token, surely=wants == MUST)
        self._land(host.name, publish.token)

    def _resolve(self, host: Host) -> None:
        """Work out what each client must have got of the datagrams that a host has processed."""
        port = self.network.ports[host.name]
        if not (port.arrivals or self._looping[host.name]) or not host.has_read_all():
            return
        self._tap_looped(host)
        if not port.arrivals:
            return
        # A daemon that was killed or stopped meanwhile finds both, and nobody knows which it takes first.
        by_link, by_segment = (
            {one.datagram.src for one in port.arrivals if one.from_link is linked} for linked in (True, False)
        )
        for src in by_link & by_segment:
            self.models.setdefault((host.name, src), SourceModel(self.rules)).unsure = True
        uncertain, self._doubtful[host.name] = self._doubtful[host.name], set()
        while port.arrivals and port.arrivals[0].before_crash:
            self._expect(host, port.arrivals.popleft(), uncertain)
        for src in uncertain:
            self.models.setdefault((host.name, src), SourceModel(self.rules)).unsure = True
        while port.arrivals:
            self._expect(host, port.arrivals.popleft(), uncertain)
        sources = host.serving.sources
        for src in sorted(uncertain):
            self.models[host.name, src].follow(sources.get(src))

    def _tap_looped(self, host: Host) -> None:
        """The daemon has read back what was broadcast on its host, which the tap shows."""
        for datagram, step in self._looping[host.name]:
            for client in self.clients[host.name]:
                if isinstance(client, Tap):
                    client.judged(datagram, NOT, step)
        self._looping[host.name].clear()

    def resolve_unsure(self) -> None:
        """Allow for what clients have sent last before they left, now that all of it was processed."""
        for host in self.hosts:
            for token, channel, step in self._unsure[host.name]:
                for client in self.clients[host.name]:
                    if isinstance(client, Observer):
                        client.address(channel)
                    elif client.wants(channel, step) != NOT:
                        client.ledger.expect(token, surely=False)
                self._land(host.name, token)
            self._unsure[host.name].clear()

    def _expect(self, host: Host, arrival: Arrival, uncertain: set[bytes]) -> None:
        datagram = arrival.datagram
        outcome = NOT
        model = None
        if self._is_own(host, datagram):
            outcome = MAY if self._has_forgotten(host, datagram.src, arrival.from_link) else NOT
        elif datagram.valid:
            if datagram.src == b"?":
                outcome = MAY
            else:
                model = self.models.setdefault((host.name, datagram.src), SourceModel(self.rules))
                outcome = model.judge(datagram.seq, arrival.when, from_link=arrival.from_link)
                if model.unsure:
                    uncertain.add(datagram.src)
                if outcome == NOT and arrival.before_crash:
                    outcome = MAY  # the next daemon does not know that it has come before
        more = self._flying[host.name][datagram.token] > 1
        for client in self.clients[host.name]:
            if isinstance(client, Observer) and outcome != NOT:
                client.address(datagram.chan)
            if isinstance(client, Tap):
                client.judged(datagram, outcome, arrival.step)
                continue
            if isinstance(client, Gateway):
                fresh = self.now - arrival.when < self.rules.horizon / 2
                client.judged(datagram, outcome, arrival.step, fresh=fresh, linked=arrival.from_link)
                continue
            wants = client.wants(datagram.chan, arrival.step)
            if (outcome == NOT or wants == NOT) and more:
                continue  # what came may be a later copy
            if outcome == NOT or wants == NOT:
                client.ledger.not_expected(datagram.token, f"seq {datagram.seq} {outcome}: {model}")
            else:
                surely = outcome == wants == MUST and datagram.token != b""
                client.ledger.expect(datagram.token, surely=surely)
        self._land(host.name, datagram.token)

    # -- what daemons send

    def on_broadcast(self, host: Host, datagram: Datagram) -> None:
        own = self._is_own(host, datagram)
        key = host.name, datagram.src, datagram.seq
        self._looping[host.name].append((datagram, self.events))
        for client in self.clients[host.name]:
            if isinstance(client, Gateway) and own and key not in self.broadcasts:
                client.sent(datagram, self.events)
        if not own:
            return  # passed on for a link
        if not datagram.token:  # a heartbeat, which clients here get too
            for client in self.clients[host.name]:
                if client.wants(datagram.chan, self.events) != NOT:
                    client.ledger.expect(b"", surely=False)
        if key not in self.broadcasts:
            self._check_number(host, datagram)
        first, times = self.broadcasts.setdefault(key, (datagram, []))
        if not times or not self._has_forgotten(host, datagram.src, from_link=True):
            times.append(self.now)
        if first != datagram:
            raise Violation(f"{host.name} has used number {datagram.seq} of {datagram.src!r} twice")

    def _has_forgotten(self, host: Host, src: bytes, from_link: bool) -> bool:
        """Whether a host that has crashed may take a datagram of its own for that of a program that speaks on the
        segment itself: it knows only the names of programs that are still connected. Another bridge may have broadcast
        it there later. What comes by links is told by its time, unless the clock was set."""
        known = host.alive and host.serving.sources.local.has(src)
        return bool(self.crashed[host.name]) and not known and (self.clock_was_set or not from_link)

    def _check_number(self, host: Host, datagram: Datagram) -> None:
        """Check that the number of a new datagram is above all that the host has used before its last crash."""
        if datagram.seq <= self._floor[host.name]:
            raise Violation(f"{host.name} goes back to number {datagram.seq} of {datagram.src!r} after a crash")
        self._highest[host.name] = max(self._highest[host.name], datagram.seq)

    # -- the end

    def close(self) -> None:
        logging.getLogger("bccnd").removeHandler(self._handler)
        for name in self.clients:
            for client in self.clients[name]:
                client.close()
        for host in self.hosts:
            host.close()
        self.network.close()


class _LogWatcher(logging.Handler):
    """Adds what daemons log to the digest; an event that tells of a bug is a violation."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self.bug = ""

    def emit(self, record: logging.LogRecord) -> None:
        name = str(getattr(record, "event", ""))
        if interposer.dead():
            return
        self._world.digest.update(name.encode())
        if name in _BUGS:
            trace = record.exc_info[1] if record.exc_info else None
            self._world.note(f"bug: {record.getMessage()} {trace!r}")
            self.bug = self.bug or f"{record.getMessage()}: {trace!r}"
