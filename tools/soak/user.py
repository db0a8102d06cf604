"""A hostile program of this host: patterns, keys, sizes and modes at random, at full speed: `python -m
tools.soak.user BUS SEED`."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

#: connections at a time
CROWD: Final = 24
#: packets that one connection sends in a row
ROW: Final = 40
DIALECTS: Final = (b"path", b"sbus", b"sbus-dot", b"broker")
MODES: Final = (
    *(b"blocking/soft/queue", b"blocking/soft/discard", b"blocking/soft/block", b"blocking/hard/discard"),
    *(b"blocking/hard/block", b"order/queue", b"order/stack", b"order/random", b"echo/on", b"echo/off"),
    *(b"!/bccn/meta/on", b"!/bccn/meta/off", b"!/bccn/batch/on", b"!/bccn/batch/off", b"!/bccn/local/on"),
    *(b"!/bccn/local/off", b"!/bccn/stats\0clients", b"!/bccn/stats\0more", b"!/bccn/sync\0x", b"!/bccn/tag\0evil"),
    *(b"!/bccn/trace\0x", b"!/bccn/receivers\0x", b'!/bccn/gateway\0{"received":Infinity}'),
)
TOKENS: Final = (b"*", b"a", b"a*", b"aa*", b"+", b">", b"", b"b")


def pattern(chance: random.Random) -> bytes:
    return b"/".join(chance.choices(TOKENS, k=chance.choice((1, 3, 12, 63, 64, 65, 500))))[:1100]


def key(chance: random.Random) -> bytes:
    kind = chance.randrange(8)
    if kind < 4:
        return b"/".join(chance.choices((b"a", b"aa", b"b", b""), k=chance.choice((1, 3, 12, 64, 340))))
    prefix = chance.choice((b"", b"!/", b"!/cred/", b"!", b"!/bccn/"))
    return prefix + b"/".join([chance.choice((b"a", b"aa"))] * chance.choice((1, 64, 1000, 30_000)))


def packet(chance: random.Random) -> bytes:
    kind = chance.randrange(20)
    if kind < 9:
        return b"MSG " + key(chance) + b"\0" + bytes(chance.choice((0, 10, 1000, 1000, 60_000)))
    if kind < 14:
        return b"SUB " + pattern(chance)
    if kind < 15:
        return b"UNSUB " + pattern(chance)
    if kind < 16:
        return b"CMSG !/bccn/dialect\0" + chance.choice(DIALECTS)
    return b"CMSG " + chance.choice(MODES) if kind < 19 else chance.randbytes(chance.choice((0, 1, 30, 100_000)))


def quietly(call: Callable[[], object]) -> bool:
    """Whether a connection goes on after a call that may find it full, empty or closed."""
    try:
        call()
    except (BlockingIOError, ConnectionResetError):
        pass
    except OSError:
        return False
    return True


def main() -> None:
    path, chance = sys.argv[1], random.Random(sys.argv[2])
    crowd: list[socket.socket] = []
    parent = os.getppid()
    while os.getppid() == parent:
        if len(crowd) < CROWD:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.settimeout(5)
            with suppress(OSError):
                sock.connect(path)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                sock.setblocking(False)
                crowd.append(sock)
                if chance.random() < 0.5:
                    sock.send(b"CMSG !/bccn/dialect\0broker")
        one = chance.choice(crowd)
        alive = all(quietly(partial(one.send, packet(chance))) for _ in range(ROW))
        if chance.random() < 0.5:
            alive = alive and all(quietly(partial(one.recv, 1 << 20)) for _ in range(ROW))
        if not alive or chance.random() < 0.001:
            crowd.remove(one)
            one.close()


if __name__ == "__main__":
    main()
