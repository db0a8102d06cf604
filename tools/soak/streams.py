"""What a soak sends at a steady pace, and the clients that account for it with the ledger of the simulation."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from bccnd.core.wire import frames
from tests.e2e.harness import KEY, Daemon, Wire, datagram
from tools.simulate.ledger import Ledger
from tools.simulate.violation import Violation

#: seconds between two beats of the publishers, and for which a slow client does not read: longer than its queue lasts
BEAT: Final = 0.02
NAP: Final = 4.0
#: messages of each publisher in a beat
AT_ONCE: Final = 4
#: channels: from the segment, and from a client
REMOTE: Final = b"soak/a/"
LOCAL: Final = b"soak/l/"


class Witness:
    """A client of a host that is due every message; a ``slow`` one reads only now and then."""

    def __init__(self, daemon: Daemon, *, batch: bool = False, slow: bool = False) -> None:
        self.host, self.slow = daemon.folder.name, slow
        self.name = self.host + (", slow" if slow else "") + (", in batches" if batch else "")
        self.faults: list[str] = []
        #: the last message of each publisher
        self.last: dict[bytes, bytes] = {}
        self.received = 0
        self.ended = False
        self.begin_round()
        self.sock = daemon.raw()
        requests = [frames.request(frames.BATCH_ON)] if batch else []
        for packet in (frames.subscribe(REMOTE), frames.subscribe(LOCAL), *requests, frames.request(frames.SYNC)):
            self.sock.send(packet)
        while frames.read(self.sock.recv(1 << 16))[1] != frames.SYNC:
            pass
        self.sock.setblocking(False)

    def begin_round(self) -> None:
        self.ledger = Ledger(self.name, lambda _token: True)

    def take(self, most: int) -> int:
        """Read up to so many packets; return how many there were."""
        for number in range(most):
            try:
                packet = self.sock.recv(1 << 20)
            except BlockingIOError:
                return number
            except OSError:
                packet = b""
            if not packet:
                self.faults += [] if self.ended else ["it was cut off"]
                self.ended = True
                return number
            for frame in frames.read_batch(packet) if packet.startswith(b"MSGS ") else (packet,):
                try:
                    self._take(*frames.read(frame))
                except Violation as violation:
                    self.faults.append(str(violation))
        return most

    def _take(self, verb: bytes, key: bytes, payload: bytes) -> None:
        if key == frames.GAP:
            self.ledger.lose(int(payload))
        elif verb == frames.MSG and key.startswith((REMOTE, LOCAL)):
            token = payload.partition(b" ")[0]
            self.last[key[: len(REMOTE)]] = token
            self.received += 1
            self.ledger.receive(token, ordered=True)

    def lasts(self) -> set[bytes]:
        return set(self.last.values())

    def settle(self, tokens: Iterable[bytes], *, crashed: bool) -> None:
        """Account for a round. What a crash may lose or double is for the simulation to judge: here a client of that
        host must be told of it."""
        try:
            if crashed:
                self.ledger.check_told(0, self.ledger.lost)
            else:
                for token in tokens:
                    self.ledger.expect(token, surely=True)
                self.ledger.balance()
        except Violation as violation:
            self.faults.append(str(violation))
        self.begin_round()


class Streams(threading.Thread):
    """Publishes on the segment and on the bus of a host, and reads for all witnesses."""

    def __init__(self, daemon: Daemon, witnesses: Sequence[Witness], chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._witnesses = witnesses
        self._chance = chance
        self._wire = Wire(daemon.port)
        self._client = daemon.raw()
        self._client.settimeout(daemon.patience)
        self._sent = 0
        #: the tokens of a round, and the beats that it still has
        self.tokens: list[bytes] = []
        self.left = 0
        #: whether slow clients read too
        self.hurry = False
        self.fault = ""
        self._over = threading.Event()
        self.start()

    def publish(self) -> None:
        """Send a message on the segment, with a copy now and then, and one from a client."""
        self._sent += 1
        tokens = b"far.%d" % self._sent, b"near.%d" % self._sent
        far, near = (b"%b %b" % (token, bytes(self._chance.choice((0, 100, 300, 1200)))) for token in tokens)
        raw = datagram("relay09/x/1", self._sent, f"{REMOTE.decode()}{self._sent % 8}", far, KEY)
        for _ in range(self._chance.choice((1, 1, 1, 2))):
            self._wire.send(raw)
        self._client.send(frames.message(LOCAL + b"x", near))
        self.tokens += tokens

    def run(self) -> None:
        woken = 0.0
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        while not self._over.wait(max(0.0, woken + BEAT - time.monotonic())):
            woken = time.monotonic()
            if self.left > 0:
                try:
                    for _ in range(AT_ONCE):
                        self.publish()
                except OSError as error:
                    self.fault = f"a publisher was cut off: {error}"
                self.left -= 1
        reader.join()

    def _read(self) -> None:
        awake_at = 0.0
        while not self._over.is_set():
            now = time.monotonic()
            slow_too = self.hurry or now >= awake_at
            read = sum(one.take(200) for one in self._witnesses if slow_too or not one.slow)
            if slow_too and not read:
                awake_at = now + NAP
            if not read:
                time.sleep(0.005)

    def close(self) -> None:
        self._over.set()
        self.join()
        for sock in (self._wire.sock, self._client, *(one.sock for one in self._witnesses)):
            with suppress(OSError):
                sock.close()
