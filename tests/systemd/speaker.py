#!/usr/bin/python3
"""Publishes numbered messages at a steady pace: over the bus of a host, or as datagrams of a host without a daemon.

Prints "ready", and at the end a line of JSON: how many messages the kernel took, how many the daemon refused, how often
it told of a gap, and the error that ended it. Over the bus, the end is when the daemon has worked through all of it.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import signal
import socket
import time
from pathlib import Path

BUS = "/run/bccnd/bus.sock"
SYNC = b"CMSG !/bccn/sync"
#: for the daemon to work through what was published (s)
PATIENCE = 20.0


def payload(publisher: int, number: int) -> bytes:
    """What tells a witness who has published it, and what came before."""
    return (b"%d#%d#" % (publisher, number)).ljust(100, b"x")


def datagram(src: str, publisher: int, number: int, key: bytes) -> bytes:
    body = b"%b:%d:load/%d|%b" % (src.encode(), number, publisher, payload(publisher, number))
    check = f":hmac={hmac.digest(key, body, hashlib.sha256)[:8].hex()}" if key else ""
    return f"BCCN1[{len(body)}{check}]".encode() + body


def read_answers(bus: socket.socket) -> tuple[int, int]:
    """Read until the daemon has worked through everything; how often it refused something, and told of a gap."""
    refused = told = 0
    bus.settimeout(PATIENCE)
    bus.send(SYNC)
    while not (packet := bus.recv(4096)).startswith(SYNC):
        if not packet:
            raise BrokenPipeError("the daemon has ended the connection")
        if packet.startswith(b"CMSG !/bccn/gap"):
            told += 1
        else:
            refused += 1
    return refused, told


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-i", "--publisher", type=int, required=True)
    parser.add_argument("-r", "--rate", type=int, required=True, help="messages a second")
    parser.add_argument("-n", "--count", type=int, default=10**9, help="so many, then the end; else at SIGTERM")
    parser.add_argument("-a", "--address", help="datagrams to this broadcast address, not over the bus")
    parser.add_argument("-c", "--src", default="")
    parser.add_argument("-k", "--key", type=Path, help="of the datagrams")
    options = parser.parse_args()
    over = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(True))
    if options.address:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.connect((options.address, 5400))
    else:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(BUS)
    key = options.key.read_bytes() if options.key else b""
    sent = refused = told = 0
    error = ""
    print("ready", flush=True)
    start = time.monotonic()
    try:
        while sent < options.count and not over:
            time.sleep(max(0.0, start + sent / options.rate - time.monotonic()))
            if options.address:
                sock.send(datagram(options.src, options.publisher, sent + 1, key))
            else:
                sock.send(b"MSG load/%d\0" % options.publisher + payload(options.publisher, sent + 1))
            sent += 1
        if not options.address:
            refused, told = read_answers(sock)
    except OSError as ended:
        error = str(ended)
    figures = {"sent": sent, "refused": refused, "told": told, "ended": error}
    print(json.dumps({"id": options.publisher, **figures}), flush=True)


if __name__ == "__main__":
    main()
