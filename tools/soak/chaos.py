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
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tests.e2e.harness import wait
from tests.e2e.shared import gateways
from tests.support import PATIENCE, ROOT
from tools.soak import hostile
from tools.soak.stage import Stage

#: sources and channels that a flood brings
FLOOD: Final = 600
#: mutated datagrams of a round
MUTATED: Final = 500
#: connections at once, more than are allowed
CONNECTIONS: Final = 150


class Chaos:
    """Done step by step, each counted by name."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self.stage, self.chance = stage, chance
        self.done: Counter[str] = Counter()
        #: rounds in which the daemon or a gateway was ended, and in which the daemon had no time to leave its state
        self.kills: list[int] = []
        self.crashes: list[int] = []
        self._churn: list[subprocess.Popen[bytes]] = []
        self._datagrams = hostile.corpus("datagram")

    def round(self, number: int) -> None:
        """Everything that this round has, in some order, between the coming and the going of the crowd."""
        self.churn_begins()
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
        self.churn_ends()
        self.stage.linked()

    # -- clients

    def churn_begins(self) -> None:
        for daemon in (self.stage.relay, self.stage.near):
            command = [sys.executable, "-m", "tools.soak.hostile", str(daemon.bus), str(self.chance.random())]
            self._churn.append(subprocess.Popen(command, cwd=ROOT))

    def churn_ends(self) -> None:
        """One way or another: killed, or told to end."""
        for process in self._churn:
            process.send_signal(self.chance.choice((signal.SIGKILL, signal.SIGTERM)))
            process.wait(PATIENCE)
            self.done["programs killed"] += 1
        self._churn.clear()

    def crowd(self, _number: int) -> None:
        """More connections than are allowed; who is here stays."""
        found = []
        for _ in range(CONNECTIONS):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.settimeout(5)
            with suppress(OSError):
                sock.connect(str(self.stage.near.bus))
                sock.send(b"SUB crowd/")
            found.append(sock)
        for sock in found:
            sock.close()

    # -- the segment

    def datagrams(self, _number: int) -> None:
        sent = hostile.broadcast(self.stage.port, hostile.mutated(self.chance, self._datagrams, MUTATED))
        self.done["hostile datagrams"] += sent

    def strangers(self, number: int) -> None:
        sent = hostile.broadcast(self.stage.port, hostile.strangers(self.chance, number, FLOOD))
        self.done["datagrams of strangers"] += sent

    # -- peers of gateways and visitors

    def visitors(self, _number: int) -> None:
        requests = hostile.corpus("http")
        for daemon in (self.stage.near, self.stage.far):
            place = daemon.settings["metrics"]["listen"]
            self.done["bad visitors"] += hostile.streams(place, self.chance.sample(requests, 5))

    def bad_peers(self, _number: int) -> None:
        """Garbage, endless lengths, what is not signed; to the broker also a subscriber that never reads."""
        some = [struct.pack(">Q", len(one)) + one for one in self.chance.sample(self._datagrams, 5)]
        garbage = [struct.pack(">Q", 1 << 62), b"\xff" * 100, *some]
        sent = hostile.streams(self.stage.link, garbage, hostile.HELLO) + hostile.streams(self.stage.link, garbage)
        ids = [one for one in hostile.corpus("broker") if b"soak" not in one]
        sent += hostile.streams(f"127.0.0.1:{self.stage.tcp}", [one * 3 for one in self.chance.sample(ids, 6)])
        with suppress(OSError), hostile.connect(f"127.0.0.1:{self.stage.tcp}") as deaf:
            deaf.sendall(b"deaf".ljust(11, b"\0") + b"\0*".ljust(52, b"\0"))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as publisher:
                for one in ids:
                    if not one.startswith(b"!"):
                        publisher.sendto(one[:1500], ("127.0.0.1", self.stage.udp))
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
        self.stage.relay.again(how)

    def kill_recorder(self, _number: int) -> None:
        self.stage.recorder.kill()
        self.stage.recorder.start()

    def kill_gateway(self, number: int) -> None:
        self.kills.append(number)
        for pid in gateways(self.stage.relay, self.chance.choice(("nng", "broker"))):
            os.kill(pid, signal.SIGKILL)
        time.sleep(1.5)  # it is started again a second later

    def stand_still(self, _number: int) -> None:
        """A host that does not come to anything for a while finds all in its socket."""
        self.stage.near.signal(signal.SIGSTOP)
        time.sleep(0.5)
        self.stage.near.signal(signal.SIGCONT)

    # -- reloads

    def good_reload(self, number: int) -> None:
        for daemon in (self.stage.near, self.stage.relay):
            daemon.settings["metrics"]["groups"] = {"a": "soak/a/", f"g{number % 5}": "churn/"}
            daemon.configure({})
            daemon.reload()

    def bad_reload(self, _number: int) -> None:
        """A file that makes no sense changes nothing."""
        for daemon in (self.stage.near, self.stage.relay):
            daemon.config.write_bytes(self.chance.choice((b"\xff\xfe", b"{", b"bus: 7", b"no_such_key: 1", b"- x\n")))
            try:
                daemon.reload()
            finally:
                daemon.configure({})


def rests(stage: Stage, clients: dict[str, int]) -> None:
    """Wait until all who came have left: only who belongs here is still connected."""
    for name, daemon in stage.daemons.items():
        most = clients[name]
        wait(lambda: daemon.metric("clients") <= most, f"{name} to have no more than {most} clients", daemon.patience)  # noqa: B023
