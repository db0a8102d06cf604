"""The segment between the hosts: loses, copies, delays and reorders datagrams at random.

Each host's segment is a port of its own on the loopback. What a daemon broadcasts there is read here, and passed on to
the ports of the others.
"""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tools.simulate import datagrams
from tools.simulate.datagrams import Datagram
from tools.simulate.host import Host, is_readable
from tools.simulate.units import enlarge_receive_buffer
from tools.simulate.violation import Violation

if TYPE_CHECKING:
    from tools.simulate.world import World

_BROADCAST: Final = "127.255.255.255"
#: real milliseconds within which the kernel delivers to this machine itself
_PATIENCE_MS: Final = 20_000


@dataclass
class Weather:
    """Chances of a datagram between two hosts, and the seconds that it takes at most."""

    loss: float = 0.0
    copy: float = 0.0
    delay: float = 0.0


class Arrival(NamedTuple):
    """A datagram that a host's socket has got, at a virtual time in seconds. ``before_crash`` is whether its daemon has
    crashed since: the one before it or the next one has processed it, or none."""

    datagram: Datagram
    when: float
    step: int
    from_link: bool = False
    before_crash: bool = False


class Port:
    """One host's end of the segment."""

    def __init__(self, host: Host) -> None:
        self.host = host
        #: datagrams that its daemon has not been seen to process
        self.arrivals: deque[Arrival] = deque()
        self.tap = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.tap.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        enlarge_receive_buffer(self.tap)
        self.tap.bind(("0.0.0.0", host.port))
        self.tap.setblocking(False)


class Network:
    """All ports of the fleet of a ``world``."""

    def __init__(self, world: World) -> None:
        self.ports = {host.name: Port(host) for host in world.hosts}
        self.weather = Weather()
        self._world = world
        self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self._sender.bind(("127.0.0.1", 0))
        self._own = self._sender.getsockname()

    def await_delivery(self) -> None:
        """Wait until the loopback has delivered all: it keeps the order on the one processor of a fleet."""
        self._sender.sendto(b"", self._own)
        if not is_readable(self._sender.fileno(), _PATIENCE_MS):
            raise Violation("the kernel has not delivered a datagram to this machine")
        self._sender.recv(1)

    def broadcast(self, datagram: Datagram, origin: str = "") -> None:
        """Carry a datagram from a host, or from another machine, to all (other) hosts."""
        rng, weather = self._world.rng, self.weather
        for name in self.ports:
            if name == origin:
                continue
            if rng.random() < weather.loss:
                continue
            for _ in range(2 if rng.random() < weather.copy else 1):
                delay = rng.random() * weather.delay
                if delay:
                    self._world.at(delay, lambda name=name: self.deliver(name, datagram))  # type: ignore[misc]
                else:
                    self.deliver(name, datagram)

    def deliver(self, name: str, datagram: Datagram) -> None:
        """Put a datagram into a host's socket."""
        port = self.ports[name]
        self._sender.sendto(datagram.raw, (_BROADCAST, port.host.port))
        port.arrivals.append(Arrival(datagram, self._world.now, self._world.events))
        self._world.fly(port.host, datagram.token, datagram.chan)
        self.collect(name)

    def collect(self, name: str) -> None:
        """Read what a host's daemon has broadcast."""
        self.await_delivery()
        port = self.ports[name]
        while True:
            try:
                raw, address = port.tap.recvfrom(65536)
            except BlockingIOError:
                return
            if address != self._own:
                datagram = datagrams.read(raw)
                self._world.on_broadcast(port.host, datagram)
                self.broadcast(datagram, name)

    def close(self) -> None:
        self._sender.close()
        for port in self.ports.values():
            port.tap.close()
