"""Hostile input of a soak: the corpus of the fuzz targets, and floods of valid datagrams. None of it is on the channels
of the soak itself or to all, so that the witnesses need not receive any of it.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from tests.e2e.harness import KEY, datagram
from tests.support import ROOT

CORPUS: Final = ROOT / "tests" / "fuzz" / "corpus"
#: how a connection between two BUS sockets begins
HELLO: Final = b"\0SP\0" + struct.pack(">HH", 0x70, 0)
#: there whatever the corpus holds
ALWAYS: Final = (b"", b"\0", b"BCCN1[", b"BCCN1[3]abc", b"MSG a", b"SUB", b"CMSG", b"MSGS 1\0", b"\xff" * 300)


def corpus(target: str) -> list[bytes]:
    folder = CORPUS / target
    found = [path.read_bytes() for path in sorted(folder.glob("*"))] if folder.is_dir() else []
    return [*ALWAYS, *found]


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
