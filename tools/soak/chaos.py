"""What is done to the hosts in each round of a soak, while the load goes on."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from tests.e2e.harness import KEY, datagram
from tests.e2e.shared import gateways
from tests.support import BROADCAST, PATIENCE, ROOT
from tools.fuzz import kept
from tools.soak.hosts import Hosts

#: sources and channels that a flood brings
FLOOD: Final = 600
#: mutated datagrams of a round
MUTATED: Final = 500
#: how a connection between two BUS sockets begins
HELLO: Final = b"\0SP\0" + struct.pack(">HH", 0x70, 0)


def corpus(target: str) -> list[bytes]:
    return [b"", b"\0", b"BCCN1[", b"BCCN1[3]abc", b"\xff" * 300, *(path.read_bytes() for path in kept(target))]


def connect(place: str) -> socket.socket:
    host, _, port = place.rpartition("//")[2].rpartition(":")
    return socket.create_connection((host, int(port)), 5)


class Chaos:
    """Done step by step, each counted by name."""

    def __init__(self, hosts: Hosts, chance: random.Random) -> None:
        self.hosts, self.chance = hosts, chance
        self.done: Counter[str] = Counter()
        #: rounds in which the link was away, and in which the daemon had no time to leave its state
        self.kills: list[int] = []
        self.crashes: list[int] = []
        self._datagrams = corpus("datagram")

    def round(self, number: int) -> None:
        """Do all that this round has, in some order, while hostile programs come and go."""
        churn = [
            subprocess.Popen([sys.executable, "-m", "tools.hostile", str(bus), str(self.chance.random())], cwd=ROOT)
            for bus in (self.hosts.relay.bus, self.hosts.near.bus)
        ]
        steps: list[Callable[[int], None]] = [
            *(self.datagrams, self.strangers, self.visitors),
            *([self.kill] if number % 3 != 0 else []),
            *([self.kill_recorder] if number % 6 == 2 else []),
            *([self.kill_gateway] if number % 6 == 0 else []),
            *([self.bad_peers] if number % 3 == 1 else []),
        ]
        self.chance.shuffle(steps)
        for step in steps:
            step(number)
            self.done[step.__name__.replace("_", " ")] += 1
            time.sleep(self.chance.random() * 0.3)
        for process in churn:
            process.send_signal(self.chance.choice((signal.SIGKILL, signal.SIGTERM)))
            process.wait(PATIENCE)
        self.hosts.wait_for_links()

    # -- the segment

    def datagrams(self, _number: int) -> None:
        """Send datagrams of the fuzz corpus, with some bytes changed."""

        def mutated() -> Iterator[bytes]:
            for _ in range(MUTATED):
                raw = bytearray(self.chance.choice(self._datagrams)[:1400])
                for _ in range(self.chance.randrange(4) if raw else 0):
                    raw[self.chance.randrange(len(raw))] = self.chance.choice(b"[]:|!?/*=0129aB \0\xff")
                yield bytes(raw)

        self._broadcast(mutated())

    def strangers(self, number: int) -> None:
        """Send signed datagrams, each of a source and on a channel that are new."""

        def signed() -> Iterator[bytes]:
            for count in range(1, FLOOD + 1):
                name, form = f"{number}-{count}", self.chance.choice(("", "", "!nobody/", "flood/"))
                channel = f"{form}{name}/{'x' * self.chance.choice((1, 50))}"
                yield datagram(f"stranger/{name}/1", count, channel, b"y", KEY)
                if count % 20 == 0:
                    yield datagram("?", count, "flood/nameless", b"%d" % count, KEY)

        self._broadcast(signed())

    def _broadcast(self, datagrams: Iterable[bytes]) -> None:
        """Send to the segment, with a pause now and then."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            for count, one in enumerate(datagrams, 1):
                with suppress(OSError):
                    sock.sendto(one, (BROADCAST, self.hosts.port))
                if count % 100 == 0:
                    time.sleep(0.01)

    # -- peers of gateways and visitors

    def visitors(self, _number: int) -> None:
        for daemon in (self.hosts.near, self.hosts.far):
            self._stream(daemon.settings["metrics"]["listen"], self.chance.sample(corpus("http"), 5))

    def _stream(self, place: str, pieces: Iterable[bytes]) -> None:
        """Connect to a TCP port for each piece, send it, and cut the connection off."""
        for piece in pieces:
            with suppress(OSError), connect(place) as sock:
                sock.settimeout(0.05)
                sock.sendall(piece)
                sock.recv(100)

    def bad_peers(self, _number: int) -> None:
        """Send garbage, endless lengths and what is not signed; connect a subscriber that never reads."""
        framed = [struct.pack(">Q", len(one)) + one for one in self.chance.sample(self._datagrams, 5)]
        garbage = [struct.pack(">Q", 1 << 62), b"\xff" * 100, *framed]
        self._stream(self.hosts.link, [*garbage, *(HELLO + piece for piece in garbage)])
        requests = [one for one in corpus("broker") if b"soak" not in one]
        broker = f"127.0.0.1:{self.hosts.tcp}"
        self._stream(broker, [one * 3 for one in self.chance.sample(requests, 6)])
        with suppress(OSError), connect(broker) as deaf, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as publisher:
            deaf.sendall(b"deaf".ljust(11, b"\0") + b"\0*".ljust(52, b"\0"))
            for one in requests:
                if not one.startswith(b"!"):
                    publisher.sendto(one[:1500], ("127.0.0.1", self.hosts.udp))
            time.sleep(0.3)

    # -- the programs themselves

    def kill(self, number: int) -> None:
        """End the daemon, one way or another; its supervisor starts it again."""
        self.kills.append(number)
        how = self.chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGABRT))
        if how != signal.SIGTERM:
            self.crashes.append(number)
        self.hosts.relay.again(how)

    def kill_recorder(self, _number: int) -> None:
        self.hosts.recorder.kill()
        self.hosts.recorder.start()

    def kill_gateway(self, number: int) -> None:
        self.kills.append(number)
        for pid in gateways(self.hosts.relay, self.chance.choice(("nng", "broker"))):
            os.kill(pid, signal.SIGKILL)
        time.sleep(1.5)  # it is started again a second later
