"""A program that sends whatever it likes to a bus, for the soak and the simulation: `python -m tools.hostile BUS SEED`.

With `attack` behind these it goes at full speed, on every channel and in every mode. Without it, it leaves the channels
of others alone, and makes nobody wait.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from contextlib import suppress
from typing import Final

#: connections at a time, packets that one of them sends in a row, and seconds between two packets of a calm one
CROWD, CALM_CROWD = 24, 12
ROW: Final = 40
PAUSE: Final = 0.002
#: frames that no client should send, and that change nothing
GARBAGE: Final = (
    *(b"", b"x", b"NOPE x", b"MSG x", b"SUB", b"CMSG !/no/such\0", b"MSG !/bccn/x\0", b"\0" * 40, b"UNSUB q"),
)
DIALECTS: Final = (b"path", b"sbus", b"sbus-dot", b"broker")
#: requests, the latter of which may have others wait, or take long
REQUESTS: Final = (
    *(b"echo/on", b"echo/off", b"!/bccn/meta/on", b"!/bccn/meta/off", b"!/bccn/batch/on", b"!/bccn/batch/off"),
    *(b"!/bccn/whoami", b"!/cred/whoami", b"!/bccn/stats", b"!/bccn/sync\0x", b"!/bccn/tag\0t1", b"!/bccn/tag\0a/b"),
    *(b"order/queue", b"order/stack", b"order/random", b"blocking/soft/discard", b"blocking/soft/error"),
    *(b"blocking/hard/discard", b"!/bccn/local/off", b"!/bccn/local/on", b"!/bccn/trace\0x", b"nothing/known"),
)
RUDE: Final = (
    *(b"blocking/soft/queue", b"blocking/soft/block", b"blocking/hard/block", b"!/bccn/stats\0clients"),
    *(b"!/bccn/stats\0more", b"!/bccn/receivers\0x", b'!/bccn/gateway\0{"received":Infinity}'),
    *(b"!/bccn/dialect\0" + name for name in DIALECTS),
)
CALM_PATTERNS: Final = (b"churn/", b"churn/a", b"churn/*/b", b"", b"soak/", b"!/", b"churn/>", b"x" * 900)
TOKENS: Final = (b"*", b"a", b"a*", b"aa*", b"+", b">", b"", b"b")


def pattern(chance: random.Random) -> bytes:
    return b"/".join(chance.choices(TOKENS, k=chance.choice((1, 3, 12, 63, 64, 65, 500))))[:1100]


def key(chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        return b"/".join(chance.choices((b"a", b"aa", b"b", b""), k=chance.choice((1, 3, 12, 64, 340))))
    prefix = chance.choice((b"", b"!/", b"!/cred/", b"!", b"!/bccn/"))
    return prefix + b"/".join([chance.choice((b"a", b"aa"))] * chance.choice((1, 64, 1000, 30_000)))


def packet(chance: random.Random, attack: bool) -> bytes:
    """Make any packet: messages and subscriptions above all."""
    kind = chance.randrange(20)
    if kind < 9:
        channel = key(chance) if attack else b"churn/" + chance.choice((b"a", b"a/b", b"c/%d" % chance.randrange(50)))
        return b"MSG " + channel + b"\0" + bytes(chance.choice((0, 10, 1000, 1000, 60_000)))
    if kind < 14:
        return b"SUB " + (pattern(chance) if attack else chance.choice(CALM_PATTERNS))
    if kind < 15:
        return b"UNSUB " + (pattern(chance) if attack else chance.choice(CALM_PATTERNS))
    if kind < 19:
        return b"CMSG " + chance.choice(REQUESTS + RUDE if attack else REQUESTS)
    return chance.randbytes(chance.choice((0, 1, 30, 100_000))) if attack else chance.choice(GARBAGE)


def connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(5)
    sock.connect(path)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    sock.setblocking(False)
    return sock


class Member:
    """One connection, which reads, or never does."""

    def __init__(self, path: str, chance: random.Random) -> None:
        self.sock = connect(path)
        self._chance = chance
        self._reads = chance.random() < 0.7

    def act(self, attack: bool) -> None:
        """Read what is there, and send. Raises OSError if the connection has ended."""
        if self._reads:
            with suppress(BlockingIOError):
                for _ in range(100):
                    if not self.sock.recv(1 << 20):
                        raise BrokenPipeError
        with suppress(BlockingIOError):
            for _ in range(ROW if attack else 1):
                self.sock.send(packet(self._chance, attack))


def main() -> None:
    path, chance, attack = sys.argv[1], random.Random(sys.argv[2]), "attack" in sys.argv[3:]
    crowd: list[Member] = []
    parent = os.getppid()
    while os.getppid() == parent:
        if len(crowd) < (CROWD if attack else CALM_CROWD):
            with suppress(OSError):
                crowd.append(Member(path, chance))
        if not attack:
            time.sleep(PAUSE)
        if not crowd:
            continue
        one = chance.choice(crowd)
        ended = chance.random() < (0.001 if attack else 0.01)
        try:
            one.act(attack)
        except OSError:  # as it may be: it is slow, or the daemon has too many
            ended = True
        if ended:
            crowd.remove(one)
            one.sock.close()


if __name__ == "__main__":
    main()
