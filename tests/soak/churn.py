"""Clients that come and go and do what they like, in a process of their own, so that it can be killed:
`python -m tests.soak.churn BUS SEED`.

They subscribe and unsubscribe, publish on channels of their own, send frames that are none, stop reading, vanish.
They do not ask for `block`: who does makes publishers wait, and that is what it is for.
"""

from __future__ import annotations

import random
import socket
import sys
import time
from contextlib import suppress
from typing import Final

from tests.soak.hostile import junk_frames

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
    while True:
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
