"""What is done to the hosts in each round of a soak, while the streams go on."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from tests.e2e.harness import KEY, Wire, datagram
from tests.e2e.shared import gateways
from tests.support import PATIENCE, ROOT
from tools.fuzz import kept
from tools.soak.hosts import Hosts

#: mutated datagrams of a round, and sources that it brings
FLOOD: Final = 600
#: how a connection between two BUS sockets begins
HELLO: Final = b"\0SP\0" + struct.pack(">HH", 0x70, 0)


def corpus(target: str) -> list[bytes]:
    return [b"", b"\0", b"BCCN1[", b"BCCN1[3]abc", b"\xff" * 300, *(path.read_bytes() for path in kept(target))]


class Chaos:
    """The steps of a round."""

    def __init__(self, hosts: Hosts, chance: random.Random) -> None:
        self.hosts, self.chance = hosts, chance
        #: how often the daemon had no time to leave its state
        self.crashes = 0

    def round(self, number: int) -> None:
        """Do all that this round has, in some order, while hostile programs come and go."""
        churn = [
            subprocess.Popen([sys.executable, "-m", "tools.hostile", str(bus), str(self.chance.random())], cwd=ROOT)
            for bus in (self.hosts.relay.bus, self.hosts.near.bus)
        ]
        steps: list[Callable[[], None]] = [self.send_datagrams, self.visit]
        steps += [self.kill] if number % 3 else [self.kill_recorder, self.kill_gateway]
        steps += [self.connect_bad_peers] if number % 3 == 1 else []
        self.chance.shuffle(steps)
        for step in steps:
            step()
            time.sleep(self.chance.random() * 0.3)
        for process in churn:
            process.send_signal(self.chance.choice((signal.SIGKILL, signal.SIGTERM)))
            process.wait(PATIENCE)
        self.hosts.wait_for_links()

    def send_datagrams(self) -> None:
        """Send datagrams of the fuzz corpus with some bytes changed, and signed ones of new sources on new channels."""
        known = corpus("datagram")
        with Wire(self.hosts.relay.port) as wire:
            for count in range(1, FLOOD + 1):
                raw = bytearray(self.chance.choice(known)[:1400])
                for _ in range(self.chance.randrange(4) if raw else 0):
                    raw[self.chance.randrange(len(raw))] = self.chance.choice(b"[]:|!?/*=0129aB \0\xff")
                name, form = f"{self.chance.randrange(1 << 40)}", self.chance.choice(("", "", "!nobody/", "flood/"))
                source = f"stranger/{name}/1" if count % 20 else "?"
                channel = f"{form}{name}/{'x' * self.chance.choice((1, 50))}"
                wire.send(bytes(raw), datagram(source, count, channel, b"y", KEY))
                if count % 100 == 0:
                    time.sleep(0.01)

    def visit(self) -> None:
        for daemon in (self.hosts.near, self.hosts.far):
            self._stream(daemon.settings["metrics"]["listen"], self.chance.sample(corpus("http"), 5))

    def _stream(self, place: str, pieces: Iterable[bytes]) -> None:
        """Connect to a TCP port for each piece, send it, and cut the connection off."""
        host, _, port = place.rpartition("//")[2].rpartition(":")
        for piece in pieces:
            with suppress(OSError), socket.create_connection((host, int(port)), 5) as sock:
                sock.settimeout(0.05)
                sock.sendall(piece)
                sock.recv(100)

    def connect_bad_peers(self) -> None:
        """Send garbage, endless lengths and what is not signed to the gateways."""
        framed = [struct.pack(">Q", len(one)) + one for one in self.chance.sample(corpus("datagram"), 5)]
        garbage = [struct.pack(">Q", 1 << 62), b"\xff" * 100, *framed]
        self._stream(self.hosts.link, [*garbage, *(HELLO + piece for piece in garbage)])
        requests = [one for one in corpus("broker") if b"soak" not in one]
        self._stream(self.hosts.tcp, [one * 3 for one in self.chance.sample(requests, 6)])

    def kill(self) -> None:
        """End the daemon, one way or another; its supervisor starts it again."""
        how = self.chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGABRT))
        self.crashes += how != signal.SIGTERM
        self.hosts.relay.again(how)

    def kill_recorder(self) -> None:
        self.hosts.recorder.kill()
        self.hosts.recorder.start()

    def kill_gateway(self) -> None:
        for pid in gateways(self.hosts.relay, self.chance.choice(("nng", "broker"))):
            os.kill(pid, signal.SIGKILL)
        time.sleep(1.5)  # it is started again a second later
