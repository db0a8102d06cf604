"""The messages of a soak: `Load` publishes at a steady pace, `Witness` counts what comes."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from bccnd.core.wire import frames
from tests.e2e.harness import KEY, datagram

#: what a payload of ours begins with; everything else that comes is none of ours
MARK: Final = b"soak "
#: seconds from one beat of the publishers to the next
BEAT: Final = 0.02
#: seconds that a publisher waits for a daemon that is being started again
PATIENCE: Final = 60.0
#: channels: from the segment, from clients, and on the bus of one host only
REMOTE: Final = b"soak/a/"
LOCAL: Final = b"soak/l/"


class Witness:
    """A client of a host that is due every message of some kinds, in order. A slow one reads only now and then."""

    def __init__(
        self, host: str, path: str, due: str, *, tag: bytes = b"", batch: bool = False, slow: bool = False
    ) -> None:
        self.host, self.due, self.slow = host, due, slow
        self.name = host + (", slow" if slow else "") + (", in batches" if batch else "")
        self.last: Counter[str] = Counter()
        self.got: Counter[str] = Counter()
        #: messages that it was told are lost, and crashes of its daemon that it was told of
        self.reported = self.crashes = 0
        #: what a crash has lost
        self.excused = 0
        #: whether messages may come again, as a crash was told since the last rest
        self.may_double = False
        self.faults: list[str] = []
        self.ended = False
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(path)
        for pattern in (REMOTE, LOCAL):
            self.sock.send(frames.subscribe(pattern))
        if tag:
            self.sock.send(frames.control(frames.TAG, tag))
        if batch:
            self.sock.send(frames.request(frames.BATCH_ON))
        self.sock.send(frames.request(frames.WHOAMI))
        while not (packet := self.sock.recv(1 << 20)).startswith(b"CMSG !/bccn/whoami\0"):
            pass
        self.identity = packet.partition(b"\0")[2]
        self.sock.setblocking(False)

    def take(self, most: int) -> int:
        """Read up to so many packets; return how many there were."""
        for number in range(most):
            try:
                packet = self.sock.recv(1 << 20)
            except BlockingIOError:
                return number
            except OSError as error:
                packet = b""
                self.faults.append(f"cut off: {error.strerror}")
            if not packet:
                self.ended = True
                return number
            for frame in frames.read_batch(packet) if packet.startswith(b"MSGS ") else (packet,):
                self.count(frame)
        return most

    def count(self, frame: bytes) -> None:
        key, _, payload = frame.partition(b"\0")
        if key == b"CMSG !/bccn/gap":
            self.reported += int(payload)
            self.crashes += not int(payload)
            self.may_double = self.may_double or not int(payload)
        elif payload.startswith(MARK):
            kind, number = payload.split(b" ", 3)[1].decode(), int(payload.split(b" ", 3)[2])
            if number > self.last[kind]:
                self.got[kind] += 1
                self.last[kind] = number
            elif not self.may_double:
                self.faults.append(f"{kind}{number} came after {kind}{self.last[kind]}")

    def unaccounted(self, arrived: Mapping[str, int]) -> int:
        """Return how many of the messages that have arrived at its host it has neither got nor was told of."""
        return sum(arrived[kind] - self.got[kind] for kind in self.due) - self.reported - self.excused


class Running:
    """Something that goes on in a thread of its own until it is closed."""

    def __init__(self) -> None:
        self._over = False
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()

    def run(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._over = True
        self._thread.join(PATIENCE)


class Load(Running):
    """Publishers on the segment and on buses, in a thread of their own; the bus called ``l`` gets most."""

    def __init__(self, port: int, buses: dict[str, str], directed: bytes, chance: random.Random) -> None:
        self.sent: Counter[str] = Counter()
        self._directed = b"!" + directed
        self._chance = chance
        self._to = ("127.255.255.255", port)
        self._wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._wire.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self._clients = {kind: self._client(path) for kind, path in buses.items()}
        #: what has ended the publishers; nothing should
        self.fault = ""
        self._left = 0
        super().__init__()

    @staticmethod
    def _client(path: str) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The kernel's own limit: with one of Python's, MSG_DONTWAIT waits.
        for limit in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", int(PATIENCE), 0))
        sock.connect(path)
        # A daemon that is killed in the moment in which it accepts a connection does not keep it.
        sock.send(frames.request(frames.WHOAMI))
        sock.recv(1 << 16)
        return sock

    def begin(self, beats: int) -> None:
        self._left = beats

    def rest(self) -> None:
        """Wait until all beats are done."""
        deadline = time.monotonic() + self._left * (BEAT + PATIENCE)
        while self._left > 0 and not self._over:
            assert time.monotonic() < deadline, (
                f"waited in vain for the publishers, which have {self._left} beats to go"
            )
            time.sleep(0.05)

    def close(self) -> None:
        super().close()
        for sock in (self._wire, *self._clients.values()):
            sock.close()

    def run(self) -> None:
        while not self._over:
            if self._left:
                try:
                    self._beat(self._left)
                except OSError as error:
                    self.fault, self._over = f"a publisher was cut off: {error}", True
                self._left -= 1
            time.sleep(BEAT)

    def _beat(self, number: int) -> None:
        for _ in range(4):
            self._broadcast()
            self._client_sends("l", "l", LOCAL + b"x")
        for kind in self._clients:
            if kind != "l":
                self._client_sends(kind, kind, LOCAL + kind.encode())
        if number % 5 == 0:
            self._client_sends("l", "g", b"!")
            self._client_sends("l", "d", self._directed)
        if number % 10 == 0:
            self._client_sends("l", "L", LOCAL + b"long", size=5_000)
        for sock in self._clients.values():  # a publisher reads as well: it is told that a message was too long
            try:
                while sock.recv(1 << 16, socket.MSG_DONTWAIT):
                    pass
            except BlockingIOError:
                pass

    def _payload(self, kind: str, size: int = 0) -> bytes:
        self.sent[kind] += 1
        size = size or self._chance.choice((30, 60, 100, 150, 150, 300, 1200))
        return b"%b%b %d " % (MARK, kind.encode(), self.sent[kind]) + bytes(size)

    def _broadcast(self) -> None:
        payload = self._payload("r")
        seq = self.sent["r"]
        raw = datagram("relay09/x/1", seq, f"{REMOTE.decode()}{seq % 8}", payload, KEY)
        for _ in range(self._chance.choice((1, 1, 1, 2))):
            self._wire.sendto(raw, self._to)
        if seq % 400 == 0:
            self._wire.sendto(datagram("relay08/beat/1", seq, "heartbeat/relay08/beat/1", b"5", KEY), self._to)

    def _client_sends(self, client: str, kind: str, key: bytes, size: int = 0) -> None:
        self._clients[client].send(frames.message(key, self._payload(kind, size)))


class Readers(Running):
    """A thread that reads for all witnesses: for the slow ones only every few seconds, and then all there is."""

    #: seconds for which a slow one does not read: longer than its queue lasts
    NAP: Final = 4.0

    def __init__(self, witnesses: list[Witness]) -> None:
        self.witnesses = witnesses
        self.hurry = False
        super().__init__()

    def run(self) -> None:
        awake_at = time.monotonic() + self.NAP
        while not self._over:
            now = time.monotonic()
            slow_too = self.hurry or now >= awake_at
            read = sum(one.take(200) for one in self.witnesses if not one.slow or slow_too)
            if slow_too and not read:
                awake_at = now + self.NAP
            if not read:
                time.sleep(0.005)

    def close(self) -> None:
        super().close()
        for one in self.witnesses:
            one.sock.close()
