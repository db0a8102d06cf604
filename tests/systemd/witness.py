#!/usr/bin/python3
"""Many programs of one host in one process: connections to the bus that note all they are told, and nothing else.

Every message is noted by connection, publisher and number; an end, a gap and a packet that is not understood as well.
A connection that is lost stays lost. Prints "ready" when all subscriptions are in force; a report, a line of JSON, at
SIGUSR1; and at SIGTERM a last one, when nothing has come for a while.
"""

from __future__ import annotations

import argparse
import json
import selectors
import signal
import socket
import time
from typing import Any

BUS = "/run/bccnd/bus.sock"
#: daemons broadcast reports of their own, on other channels
PATTERN = b"load/"
SYNC = b"CMSG !/bccn/sync"
#: more than the bus ever sends in one piece
LARGEST = 1 << 19
#: for how long a slow connection reads between two pauses, and how long all are silent before the end (s)
READING = QUIET = 0.5


class Publisher:
    """The numbers of one publisher, which begin with 1 and leave none out."""

    def __init__(self) -> None:
        self._seen = bytearray()
        self.count = self.last = self.doubled = self.disordered = 0

    def add(self, number: int) -> int:
        """Note a number; returns how many were left out just now, if it is the highest so far."""
        if number >= len(self._seen):
            self._seen.extend(bytes(number + 1))
        if self._seen[number]:
            self.doubled += 1
            return 0
        self._seen[number] = 1
        self.count += 1
        if number < self.last:
            self.disordered += 1
            return 0
        left_out = number - self.last - 1
        self.last = number
        return left_out

    def report(self) -> dict[str, int]:
        return {"count": self.count, "last": self.last, "doubled": self.doubled, "disordered": self.disordered}


class Connection:
    def __init__(self, *, batch: bool, slow: bool) -> None:
        self.batch, self.slow = batch, slow
        self.publishers: dict[bytes, Publisher] = {}
        self.left_out = self.told = self.crashes = self.unannounced = self.refused = self.strange = 0
        self.first_refused = ""
        #: why the connection has ended
        self.ended = ""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(BUS)
        for frame in (*([b"CMSG !/bccn/batch/on"] if batch else []), b"SUB " + PATTERN, SYNC):
            self.sock.send(frame)
        while not (packet := self.sock.recv(LARGEST)).startswith(SYNC):
            self.take(packet)
        self.sock.setblocking(False)

    def read(self) -> None:
        """Take what is there now, with a bound, so that the others get their turn."""
        try:
            for _ in range(256):
                packet = self.sock.recv(LARGEST)
                if not packet:
                    self.ended = "end of file"
                    return
                self.take(packet)
        except BlockingIOError:
            pass
        except OSError as error:
            self.ended = str(error)

    def take(self, packet: bytes) -> None:
        if packet.startswith(b"MSG "):
            self._message(packet)
        elif packet.startswith(b"MSGS "):
            place = packet.index(b"\0") + 1
            while place < len(packet):
                end = place + 4 + int.from_bytes(packet[place : place + 4], "little")
                self._message(packet[place + 4 : end])
                place = end
        elif packet.startswith(b"CMSG !/bccn/gap\0"):
            told = int(packet.partition(b"\0")[2])
            self.told += told
            self.crashes += not told  # an unknown number
        else:
            self.refused += 1
            self.first_refused = self.first_refused or repr(packet)

    def _message(self, frame: bytes) -> None:
        publisher, _, rest = frame.partition(b"\0")[2].partition(b"#")
        number = rest.partition(b"#")[0]
        if not publisher.isdigit() or not number.isdigit():
            self.strange += 1
            return
        if publisher not in self.publishers:
            self.publishers[publisher] = Publisher()
        # Where something is missing, the gap that tells of it comes before what came after.
        self.left_out += self.publishers[publisher].add(int(number))
        if self.left_out > self.told and not self.crashes:
            self.unannounced += 1

    def report(self) -> dict[str, Any]:
        names = ("batch", "slow", "told", "crashes", "unannounced", "refused", "first_refused", "strange", "ended")
        publishers = {name.decode(): publisher.report() for name, publisher in self.publishers.items()}
        return {**{name: getattr(self, name) for name in names}, "publishers": publishers}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", "--connections", type=int, default=1)
    parser.add_argument("-b", "--batch", type=int, default=0, help="so many in batch mode, from the first one on")
    parser.add_argument(
        "-w", "--slow", type=int, default=0, help="so many slow, the last ones; every second in batches"
    )
    parser.add_argument("-p", "--pause", type=float, default=2.5, help="seconds in which a slow one does not read")
    options = parser.parse_args()
    #: signals, and when they came
    asked: dict[int, float] = {}
    for which in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(which, lambda number, _: asked.update({number: time.monotonic()}))
    fast = options.connections - options.slow
    connections = [
        Connection(batch=bool(number % 2) if number >= fast else number < options.batch, slow=number >= fast)
        for number in range(options.connections)
    ]
    selector = selectors.DefaultSelector()
    print("ready", flush=True)
    start = latest = time.monotonic()
    reading: set[Connection] = set()
    while signal.SIGTERM not in asked or time.monotonic() < max(latest, asked[signal.SIGTERM]) + QUIET:
        for number, one in enumerate(connections):
            # Each slow one is a little behind the one before.
            pausing = one.slow and (time.monotonic() - start + number * 0.1) % (options.pause + READING) < options.pause
            reads = not one.ended and (signal.SIGTERM in asked or not pausing)
            if reads and one not in reading:
                selector.register(one.sock, selectors.EVENT_READ, one)
                reading.add(one)
            elif not reads and one in reading:
                selector.unregister(one.sock)
                reading.remove(one)
        for key, _ in selector.select(0.02):
            key.data.read()
            latest = time.monotonic()
        if asked.pop(signal.SIGUSR1, None):
            print(json.dumps({"connections": [one.report() for one in connections]}), flush=True)
    print(json.dumps({"connections": [one.report() for one in connections]}), flush=True)


if __name__ == "__main__":
    main()
