"""Programs on other machines of the segment: signed or not, with holes, copies, late datagrams and restarts."""

from __future__ import annotations

import random
from typing import Final

from tools.simulate import datagrams, fleet
from tools.simulate.datagrams import Datagram
from tools.simulate.world import World

#: names of senders, which come again: tables of names reach their full size early
_NAMES: Final = 12
CHANNELS: Final = tuple(f"{first}/{second}/{third}".encode() for first in "abc" for second in "xyz" for third in "123")


class Sender:
    """A program of another machine; in some forms its datagrams may arrive in any order (``disorderly``)."""

    def __init__(self, world: World, number: int) -> None:
        rng = world.rng
        self._world = world
        self.src = b"far%d/prog/%d" % (number % 3, number)
        self._key = fleet.KEY if "integrity" in world.settings else b""
        self.seq = rng.choice([1, 1, 1_770_000_000_000_000 + world.events])
        self.last_sent = 0.0
        self.disorderly = rng.random() < 0.3
        self._kept: list[Datagram] = []

    def _make(self, seq: int, *, valid: bool = True, disorderly: bool = False) -> Datagram:
        world = self._world
        name = (b"~" if self.disorderly or disorderly else b"") + self.src
        world.serials[name] += 1
        token = b"%b.%d" % (name, world.serials[name])
        return datagrams.make(self.src, seq, world.rng.choice(CHANNELS), token, self._key, valid=valid)

    def _send(self, datagram: Datagram) -> None:
        self.last_sent = self._world.now
        self._world.network.broadcast(datagram)

    def made(self, count: int, *, disorderly: bool = False) -> list[Datagram]:
        """Return the next messages, for others to carry."""
        self.seq += count
        return [self._make(seq, disorderly=disorderly) for seq in range(self.seq - count, self.seq)]

    def send(self, count: int) -> list[Datagram]:
        """Send the next messages."""
        sent = self.made(count)
        for datagram in sent:
            self._send(datagram)
        return sent

    def act(self) -> str:
        """Do one thing at random; return what it was."""
        rng = self._world.rng
        choice = rng.choice(
            ("next", "next", "next", "next", "hole", "copy", "invalid", "restart", "jump", "late", "own")
        )
        if choice == "copy":
            (datagram,) = self.send(1)
            again = rng.random() * 1.2
            self._world.at(again, lambda: self._world.network.broadcast(datagram))
        elif choice == "hole":
            self.send(1)
            self.seq += rng.randrange(1, 20)
            self.send(1)
        elif choice == "invalid":
            self._world.network.broadcast(self._make(self.seq, valid=False))
        elif choice == "restart" and self._world.now - self.last_sent > 3.0 and self.seq < 10**15:
            self.seq = 1
            self.send(1)
        elif choice == "jump":
            self.seq += rng.choice([5000, 10**6])
            self.send(1)
        elif choice == "late" and self.disorderly:
            late = self._make(self.seq)
            self.seq += 1
            self.send(rng.randrange(1, 4))
            self._world.at(rng.random(), lambda: self._world.network.broadcast(late))
        else:
            self.send(rng.randrange(1, 6))
        return choice


def draw_sender(world: World, rng: random.Random) -> Sender:
    return Sender(world, rng.randrange(_NAMES))
