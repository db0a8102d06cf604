"""What local programs do at random: they come and go, subscribe, publish, stall, flood, and leave things unfinished."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from bccnd.core.wire import frames
from tools.hostile import GARBAGE
from tools.simulate import datagrams, fleet
from tools.simulate.clients import Client
from tools.simulate.datagrams import Datagram
from tools.simulate.host import Host
from tools.simulate.network import Arrival
from tools.simulate.observers import Gateway, Observer, Tap
from tools.simulate.senders import CHANNELS, Sender
from tools.simulate.world import World

#: users of local programs; the first may do anything, the second is nobody
USERS: Final = (0, 65_534, 4001)
LITERAL: Final = CHANNELS
WILD: Final = (b"", b"a/", b"b/x/", b"a/*/1", b"*/x/2", b"c/>", b"b/*")
OTHER_DIALECTS: Final = {
    "sbus": (b"", b"a/", b"a/*/1", b"b/x/3"),
    "sbus-dot": (b"", b"a/x/1"),
    "broker": (b"", b"a/+/1", b"a/*", b"b/x/3", b"*/2"),
}
#: most clients of a host at a time
MOST: Final = 24


class LocalPrograms:
    """The clients of all hosts; ``calm`` ones only, where the episode has it so."""

    def __init__(self, world: World, senders: list[Sender]) -> None:
        self._world = world
        self._senders = senders
        #: when the last datagram on its way from one host to another arrives: a link keeps the order
        self._links: defaultdict[tuple[str, str], float] = defaultdict(float)
        #: what this episode's clients do: by name, how often
        self.only_literal = False
        self.sloppy = 0.3

    def any_client(self, *, settled: bool = False) -> Client | None:
        found = [
            one
            for clients in self._world.clients.values()
            for one in clients
            if not (isinstance(one, Observer) or one.half_closed)
        ]
        found = [one for one in found if not one.host.stalled and (one.settled or not settled)]
        return self._world.rng.choice(found) if found else None

    # -- they come and go

    def connect(self, host: Host, *, sloppy: bool | None = None, uid: int | None = None) -> Client | None:
        """Connect a client with some modes, and subscribe; None if a host has enough of them."""
        world, rng = self._world, self._world.rng
        if len(world.clients[host.name]) >= MOST:
            return None
        client = Client(world, host, rng.choice(USERS) if uid is None else uid)
        world.clients[host.name].append(client)
        world.note(f"{client.name} connects as {client.uid}")
        if rng.random() < 0.3 and not self.only_literal:
            client.meta = True
            client.send(frames.request(frames.META_ON))
        if rng.random() < 0.3:
            client.batched = True
            client.send(frames.request(frames.BATCH_ON))
        if rng.random() < 0.2:
            client.echo = False
            client.send(frames.request(frames.ECHO + b"off"))
        if rng.random() < 0.2 and not self.only_literal:
            client.dialect = rng.choice(list(OTHER_DIALECTS))
            client.send(frames.request(frames.DIALECT, client.dialect.encode()))
        if (rng.random() < self.sloppy) if sloppy is None else sloppy:
            self._make_sloppy(client)
        if rng.random() < 0.2 and client.uid in (0, 65_534):
            tag = b"t%d" % rng.randrange(4)
            client.identity = client.base + b"/" + tag
            client.send(frames.request(frames.TAG, tag))
        for _ in range(rng.randrange(1, 4)):
            self.subscribe(client)
        return client

    def _make_sloppy(self, client: Client) -> None:
        rng = self._world.rng
        client.plain = False
        soft = rng.choice([b"queue", b"queue", b"discard", b"block", b"error"])
        hard = rng.choice([b"discard", b"discard", b"block", b"error"])
        order = rng.choice([b"queue", b"queue", b"stack", b"random"])
        client.may_end = b"error" in (soft, hard)
        client.ordered = order == b"queue"
        client.send(frames.request(frames.SOFT + soft), frames.request(frames.HARD + hard))
        client.send(frames.request(frames.ORDER + order))

    def disconnect(self, client: Client) -> None:
        self._world.note(f"{client.name} leaves")
        if self._world.rng.random() < 0.2:
            client.send(*[frames.request(frames.STATS, b"sources")] * 2)
        self._world.remove(client)

    def half_close(self, client: Client) -> None:
        if not client.plain:
            self._world.note(f"{client.name} will send no more")
            client.half_close()

    # -- what they ask for

    def subscribe(self, client: Client) -> None:
        rng = self._world.rng
        patterns = OTHER_DIALECTS.get(client.dialect)
        if patterns is None:
            patterns = LITERAL if self.only_literal or rng.random() < 0.4 else WILD
        pattern = rng.choice(patterns)
        if sum(client.patterns.values()) < 12:
            client.subscribe(pattern)

    def unsubscribe(self, client: Client) -> None:
        if client.patterns:
            client.unsubscribe(self._world.rng.choice(sorted(client.patterns)))

    def publish(self, client: Client, count: int = 0) -> None:
        """Publish some messages: plain, to all, or directed."""
        rng = self._world.rng
        if client.backed_up:
            return
        for _ in range(count or rng.choice([1, 1, 2, 5, 30])):
            kind = rng.random()
            if kind < 0.08:
                channel = b"!"
            elif kind < 0.16:
                other = self.any_client(settled=True)
                channel = b"!" + (other.base if other is not None and not other.meta else b"host0/*")
            elif kind < 0.3:
                channel = rng.choice(fleet.REPEATS)[0] + b"x"
            else:
                channel = rng.choice(CHANNELS)
            if client.uid == 65_534 and (channel.startswith(b"c/") or channel[:2] == b"!h"):
                continue  # it may not
            client.publish(channel)
        client.sync()

    def stall(self, client: Client) -> None:
        """Let a sloppy client stop reading for a while."""
        world = self._world
        if client.plain:
            return
        client.reading = False
        if world.rng.random() < 0.5:
            client.shrink()

        def read_again() -> None:
            client.reading = True
            if client.open and client in world.clients[client.host.name]:
                world.serve_clients(client.host)

        world.at(world.rng.random() * 20, read_again)

    def send_garbage(self, client: Client) -> None:
        client.send(self._world.rng.choice(GARBAGE))

    def ask(self, client: Client) -> None:
        """Ask for listings, a trace or receivers; often nothing reads on."""
        rng = self._world.rng
        if client.uid == 0:
            listings = [(frames.STATS, name) for name in (b"sources", b"clients", b"users", b"daemon", b"more")]
            trace = (frames.TRACE, datagrams.make(b"x/y/1", 5, b"a/x/1", b"t").raw)
            client.send(frames.request(*rng.choice([*listings, trace, (frames.RECEIVERS, rng.choice(CHANNELS))])))

    def leave_while_traced(self, tracer: Client) -> None:
        """A client with many patterns leaves while another asks for the receivers of a channel."""
        if tracer.uid:
            return
        world = self._world
        client = self.connect(tracer.host, sloppy=False)
        if client is None:
            return
        client.send(*[frames.subscribe(b"m/%d/%d" % (number % 9, number)) for number in range(200)])
        client.send(frames.subscribe(b"a/"))
        client.sync()
        world.settle()
        if client.open and client in world.clients[client.host.name]:
            world.note(f"{client.name} leaves with many patterns, and {tracer.name} asks")
            world.remove(client)
            for channel in CHANNELS[:3]:
                tracer.send(frames.request(frames.RECEIVERS, channel))
            for _ in range(4):
                tracer.send(frames.request(frames.TRACE, datagrams.make(b"x/y/1", 5, b"a/x/1", b"t").raw))

    def flood(self, host: Host) -> None:
        """Many clients of one user publish at once."""
        uid = self._world.rng.choice(USERS)
        self._world.note(f"clients of user {uid} flood {host.name}")
        for _ in range(20):
            client = self.connect(host, sloppy=False, uid=uid)
            if client is not None:
                self.publish(client, 20)

    # -- who gets whole datagrams

    def tap(self, host: Host) -> None:
        """Connect to the tap of a host."""
        clients = self._world.clients[host.name]
        if sum(isinstance(one, Tap) for one in clients) < 2:
            self._world.note(f"a tap of {host.name}")
            clients.append(Tap(self._world, host, 0))

    def _gateway(self, host: Host) -> Gateway | None:
        """Return the gateway of a host, if it is connected."""
        return next((one for one in self._world.clients[host.name] if isinstance(one, Gateway)), None)

    def _connect_gateway(self, host: Host) -> Gateway | None:
        world = self._world
        gateway = Gateway(world.rng.random() < 0.5, self._carry, world, host, 0)
        world.clients[host.name].append(gateway)
        world.settle()
        return self._gateway(host)

    def _carry(self, gateway: Gateway, origin: int, raw: bytes) -> None:
        """A gateway sends a datagram to the gateways of other hosts, but not back to where it came from."""
        world = self._world
        for number, host in enumerate(world.hosts, start=1):
            if host is not gateway.host and number != origin:
                self._bring_later(host, gateway.host, datagrams.read(raw), world.rng.choice([0.0, 0.001, 0.3]))

    def _bring_later(self, host: Host, origin: Host, datagram: Datagram, delay: float) -> None:
        def bring() -> None:
            # The model needs to know in which order a daemon takes datagrams of links and of the segment.
            there = self._gateway(host)
            if there and host.alive and not host.stalled and not self._world.network.ports[host.name].arrivals:
                self._bring(there, datagram, 0.0, 1 + self._world.hosts.index(origin))

        link = origin.name, host.name
        self._links[link] = max(self._world.now + delay, self._links[link])
        self._world.at(self._links[link] - self._world.now, bring)

    def _bring(self, gateway: Gateway, datagram: Datagram, waited: float, origin: int) -> None:
        """A gateway brings a datagram that has waited on its link for some seconds."""
        world, host = self._world, gateway.host
        if gateway.backed_up:
            return
        received_ns = int((world.wall - waited) * 1e9)
        world.fly(host, datagram.token, datagram.chan)
        world.network.ports[host.name].arrivals.append(Arrival(datagram, world.now - waited, world.events, True))
        gateway.send(frames.arrived("nng", origin, received_ns, "10.9.9.9:5400", datagram.raw))
        world.settle()

    def bring(self, host: Host) -> None:
        """A gateway brings a datagram from afar; perhaps a copy comes by the segment too."""
        if not self._world.rules.linked or not self._senders:
            return
        world, rng = self._world, self._world.rng
        if world.network.ports[host.name].arrivals:
            return
        gateway = self._gateway(host) or self._connect_gateway(host)
        if gateway is None:
            return
        (datagram,) = rng.choice(self._senders).made(1, disorderly=True)
        waited = rng.choice([0.0, 0.1, 1.0, 5.0, 25.0])
        world.note(f"a link brings {datagram.token!r} to {host.name}, {waited} s late")
        self._bring(gateway, datagram, waited, len(world.hosts) + 1)
        if rng.random() < 0.7:
            world.at(rng.random() * 0.5, lambda: world.network.broadcast(datagram))
