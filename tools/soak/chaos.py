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
from tests.support import PATIENCE, ROOT
from tools.fuzz import kept
from tools.soak.hosts import Hosts

#: sources and channels that a flood brings
FLOOD: Final = 600
#: mutated datagrams of a round
MUTATED: Final = 500
#: connections at once, more than are allowed
CONNECTIONS: Final = 150
#: how a connection between two BUS sockets begins
HELLO: Final = b"\0SP\0" + struct.pack(">HH", 0x70, 0)


def corpus(target: str) -> list[bytes]:
    return [b"", b"\0", b"BCCN1[", b"BCCN1[3]abc", b"\xff" * 300, *(path.read_bytes() for path in kept(target))]


def mutated(chance: random.Random, seeds: list[bytes]) -> Iterator[bytes]:
    """Datagrams that were like that, and have become something else on the way."""
    for _ in range(MUTATED):
        raw = bytearray(chance.choice(seeds)[:1400])
        for _ in range(chance.randrange(4) if raw else 0):
            raw[chance.randrange(len(raw))] = chance.choice(b"[]:|!?/*=0129aB \0\xff")
        yield bytes(raw)


def strangers(chance: random.Random, round_number: int) -> Iterator[bytes]:
    """Signed as they should be, and each of them a source and a channel that nobody has ever heard of."""
    for number in range(FLOOD):
        name = f"{round_number}-{number}"
        form = chance.choice(("", "", "!nobody/", "flood/"))
        yield datagram(f"stranger/{name}/1", number + 1, f"{form}{name}/{'x' * chance.choice((1, 50))}", b"y", KEY)
        if number % 20 == 0:
            yield datagram("?", number + 1, "flood/nameless", b"%d" % number, KEY)


def connect(place: str) -> socket.socket:
    host, _, port = place.rpartition("//")[2].rpartition(":")
    return socket.create_connection((host, int(port)), 5)


def streams(place: str, pieces: Iterable[bytes], hello: bytes = b"") -> int:
    """Connections to a TCP port that each say something and are cut off; how many there were."""
    sent = list(pieces)
    for piece in sent:
        with suppress(OSError), connect(place) as sock:
            sock.settimeout(0.05)
            sock.sendall(hello + piece)
            sock.recv(100)
    return len(sent)


class Chaos:
    """Done step by step, each counted by name."""

    def __init__(self, hosts: Hosts, chance: random.Random) -> None:
        self.hosts, self.chance = hosts, chance
        self.done: Counter[str] = Counter()
        #: rounds in which the daemon or a gateway was ended, and in which the daemon had no time to leave its state
        self.kills: list[int] = []
        self.crashes: list[int] = []
        self._datagrams = corpus("datagram")

    def round(self, number: int) -> None:
        """Do all that this round has, in some order, while hostile programs come and go."""
        churn = [
            subprocess.Popen(
                [sys.executable, "-m", "tools.hostile", str(daemon.bus), str(self.chance.random())], cwd=ROOT
            )
            for daemon in (self.hosts.relay, self.hosts.near)
        ]
        steps: list[Callable[[int], None]] = [
            *(self.datagrams, self.strangers, self.visitors, self.good_reload),
            *([self.kill] if number % 3 != 0 else []),
            *([self.kill_recorder] if number % 6 == 2 else []),
            *([self.kill_gateway] if number % 6 == 0 else []),
            *([self.crowd, self.bad_reload] if number % 3 == 0 else []),
            *([self.bad_peers] if number % 3 == 1 else []),
            *([self.stand_still] if number % 3 == 2 else []),
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

    def crowd(self, _number: int) -> None:
        """More connections than are allowed; who is here stays."""
        found = []
        for _ in range(CONNECTIONS):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.settimeout(5)
            with suppress(OSError):
                sock.connect(str(self.hosts.near.bus))
                sock.send(b"SUB crowd/")
            found.append(sock)
        for sock in found:
            sock.close()

    # -- the segment

    def _broadcast(self, datagrams: Iterable[bytes]) -> int:
        """Send to the segment, with a moment to breathe now and then; how many there were."""
        count = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            for count, one in enumerate(datagrams, 1):
                with suppress(OSError):
                    sock.sendto(one, ("127.255.255.255", self.hosts.port))
                if count % 100 == 0:
                    time.sleep(0.01)
        return count

    def datagrams(self, _number: int) -> None:
        self.done["hostile datagrams"] += self._broadcast(mutated(self.chance, self._datagrams))

    def strangers(self, number: int) -> None:
        self.done["datagrams of strangers"] += self._broadcast(strangers(self.chance, number))

    # -- peers of gateways and visitors

    def visitors(self, _number: int) -> None:
        requests = corpus("http")
        for daemon in (self.hosts.near, self.hosts.far):
            place = daemon.settings["metrics"]["listen"]
            self.done["bad visitors"] += streams(place, self.chance.sample(requests, 5))

    def bad_peers(self, _number: int) -> None:
        """Garbage, endless lengths, what is not signed; to the broker also a subscriber that never reads."""
        some = [struct.pack(">Q", len(one)) + one for one in self.chance.sample(self._datagrams, 5)]
        garbage = [struct.pack(">Q", 1 << 62), b"\xff" * 100, *some]
        sent = streams(self.hosts.link, garbage, HELLO) + streams(self.hosts.link, garbage)
        ids = [one for one in corpus("broker") if b"soak" not in one]
        sent += streams(f"127.0.0.1:{self.hosts.tcp}", [one * 3 for one in self.chance.sample(ids, 6)])
        with suppress(OSError), connect(f"127.0.0.1:{self.hosts.tcp}") as deaf:
            deaf.sendall(b"deaf".ljust(11, b"\0") + b"\0*".ljust(52, b"\0"))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as publisher:
                for one in ids:
                    if not one.startswith(b"!"):
                        publisher.sendto(one[:1500], ("127.0.0.1", self.hosts.udp))
                        sent += 1
            time.sleep(0.3)
        self.done["bad peers and values"] += sent

    # -- the programs themselves

    def kill(self, number: int) -> None:
        """The daemon, one way or another; its supervisor starts it again."""
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

    def stand_still(self, _number: int) -> None:
        """A host that does not come to anything for a while finds all in its socket."""
        self.hosts.near.signal(signal.SIGSTOP)
        time.sleep(0.5)
        self.hosts.near.signal(signal.SIGCONT)

    # -- reloads

    def good_reload(self, number: int) -> None:
        for daemon in (self.hosts.near, self.hosts.relay):
            daemon.settings["metrics"]["groups"] = {"a": "soak/a/", f"g{number % 5}": "churn/"}
            daemon.configure({})
            daemon.reload()

    def bad_reload(self, _number: int) -> None:
        """A file that makes no sense changes nothing."""
        for daemon in (self.hosts.near, self.hosts.relay):
            daemon.config.write_bytes(self.chance.choice((b"\xff\xfe", b"{", b"bus: 7", b"no_such_key: 1", b"- x\n")))
            try:
                daemon.reload()
            finally:
                daemon.configure({})
