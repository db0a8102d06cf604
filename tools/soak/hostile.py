"""Hostile input of a soak, and clients that do what they like: `python -m tools.soak.hostile BUS SEED`."""

from __future__ import annotations

import os
import random
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from tests.e2e.harness import KEY, datagram
from tools.fuzz.replay import kept

#: how a connection between two BUS sockets begins
HELLO: Final = b"\0SP\0" + struct.pack(">HH", 0x70, 0)
ALWAYS: Final = (b"", b"\0", b"BCCN1[", b"BCCN1[3]abc", b"MSG a", b"SUB", b"CMSG", b"MSGS 1\0", b"\xff" * 300)


def corpus(target: str) -> list[bytes]:
    """What is sent whatever the corpus of a fuzz target holds, and that."""
    return [*ALWAYS, *(path.read_bytes() for path in kept(target))]


def junk_frames() -> list[bytes]:
    """Packets for the bus; what goes to all or would make publishers wait is left out, and so is what is too long."""
    barred = (b"MSG !\0", b"soak", b"block", b"!relay", b"MSG !")
    return [one for one in corpus("frames") if not any(part in one for part in barred) and len(one) < 60_000]


def mutated(chance: random.Random, seeds: list[bytes], count: int) -> Iterator[bytes]:
    """Datagrams that were like that, and have become something else on the way."""
    for _ in range(count):
        raw = bytearray(chance.choice(seeds)[:1400])
        for _ in range(chance.randrange(4)):
            if raw:
                raw[chance.randrange(len(raw))] = chance.choice(b"[]:|!?/*=0129aB \0\xff")
        yield bytes(raw)


def broadcast(port: int, datagrams: Iterable[bytes], burst: int = 100) -> int:
    """Send to a segment, with a moment to breathe after each burst; how many there were."""
    count = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for one in datagrams:
            with suppress(OSError):
                sock.sendto(one, ("127.255.255.255", port))
            count += 1
            if count % burst == 0:
                time.sleep(0.01)
    return count


def strangers(chance: random.Random, round_number: int, count: int) -> Iterator[bytes]:
    """Signed as they should be, and each of them a source and a channel that nobody has ever heard of."""
    for number in range(count):
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
    count = 0
    for piece in pieces:
        with suppress(OSError), connect(place) as sock:
            sock.settimeout(0.05)
            sock.sendall(hello + piece)
            sock.recv(100)
        count += 1
    return count


#: connections at a time
CROWD: Final = 12
#: seconds between two things that they do: some hundreds a second, so that the others are heard as well
PAUSE: Final = 0.002
PATTERNS: Final = (b"churn/", b"churn/a", b"churn/*/b", b"", b"soak/", b"!/", b"churn/>", b"x" * 900)
REQUESTS: Final = (
    *(b"echo/on", b"echo/off", b"!/bccn/meta/on", b"!/bccn/meta/off", b"!/bccn/batch/on", b"!/bccn/batch/off"),
    *(b"!/bccn/whoami", b"!/cred/whoami", b"!/bccn/stats", b"!/bccn/sync\0x", b"!/bccn/tag\0t1", b"!/bccn/tag\0a/b"),
    *(b"order/queue", b"order/stack", b"order/random", b"blocking/soft/discard", b"blocking/soft/error"),
    *(b"blocking/hard/discard", b"!/bccn/local/off", b"!/bccn/local/on", b"!/bccn/trace\0x", b"nothing/known"),
)


class Member:
    """One connection."""

    def __init__(self, path: str, chance: random.Random) -> None:
        self.chance = chance
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(5)
        self.sock.connect(path)
        self.sock.setblocking(False)
        self.reads = chance.random() < 0.7

    def act(self, junk: list[bytes]) -> None:
        if self.reads:
            with suppress(BlockingIOError):
                for _ in range(100):
                    if not self.sock.recv(1 << 20):
                        raise BrokenPipeError
        with suppress(BlockingIOError):
            self.sock.send(self._packet(junk))

    def _packet(self, junk: list[bytes]) -> bytes:
        chance = self.chance
        kind = chance.randrange(10)
        if kind < 4:
            size = chance.choice((0, 10, 200, 2000, 60_000))
            return b"MSG churn/%b\0" % chance.choice((b"a", b"a/b", b"c/%d" % chance.randrange(50))) + bytes(size)
        if kind < 6:
            return b"SUB " + chance.choice(PATTERNS)
        if kind < 7:
            return b"UNSUB " + chance.choice(PATTERNS)
        return b"CMSG " + chance.choice(REQUESTS) if kind < 9 else chance.choice(junk)


def main() -> None:
    path, chance = sys.argv[1], random.Random(sys.argv[2])
    junk = junk_frames()
    crowd: list[Member] = []
    parent = os.getppid()
    while os.getppid() == parent:
        if len(crowd) < CROWD:
            with suppress(OSError):
                crowd.append(Member(path, chance))
        for member in list(crowd):
            try:
                member.act(junk)
            except OSError:  # ended, as it may be: it is slow, or the daemon has too many
                member.sock.close()
                crowd.remove(member)
            time.sleep(PAUSE)
        if crowd and chance.random() < 0.1:
            crowd.pop(chance.randrange(len(crowd))).sock.close()


if __name__ == "__main__":
    main()
