"""Clients that do not read lose their own messages and hold up no other client."""

from __future__ import annotations

import os
import selectors
import time
from pathlib import Path

from tests.e2e.harness import Daemon, Wire, datagram, wait

CLIENTS, SLEEPERS, CHANNELS = 200, 20, 20
MESSAGES, RATE = 10_000, 5_000
QUEUE_BYTES = 256 << 10
PAYLOAD = b"x" * 80


class Reader:
    """A client that counts the messages it is sent, and checks that none is missing or out of order."""

    def __init__(self, daemon: Daemon, pattern: str, step: int) -> None:
        self.sock = daemon.raw()
        self.sock.send(b"SUB " + pattern.encode())
        self.sock.send(b"CMSG !/bccn/sync")
        assert self.sock.recv(100).startswith(b"CMSG !/bccn/sync")
        self.sock.setblocking(False)
        self.next, self.step = 0 if step == 1 else int(pattern.rpartition("/")[2]), step
        self.got = self.lost = 0

    def read(self) -> None:
        while True:
            try:
                packet = self.sock.recv(4096)
            except BlockingIOError:
                return
            head, _, payload = packet.partition(b"\0")
            if head == b"CMSG !/bccn/gap":
                self.lost += int(payload)
                self.next += int(payload) * self.step
                continue
            assert head.startswith(b"MSG load/")
            assert int(payload[:8]) == self.next, "a message is not where it should be"
            self.next += self.step
            self.got += 1

    def has_all(self) -> bool:
        self.read()
        return self.got + self.lost >= MESSAGES


def test_with_200_clients_of_which_20_never_read_the_others_lose_nothing_at_5000_messages_a_second(
    tmp_path: Path,
) -> None:
    limits = {"queue": {"messages": 1024, "bytes": QUEUE_BYTES}, "user": {"queue_bytes": SLEEPERS * QUEUE_BYTES}}
    with Daemon(tmp_path / "d", {"bus": limits, "dedup": {"sanity": 65_536}}) as daemon, Wire(daemon.port) as wire:
        # Every reader wants its share of the channels; the sleepers want everything.
        readers = [Reader(daemon, f"load/{n % CHANNELS}", CHANNELS) for n in range(CLIENTS - SLEEPERS)]
        sleepers = [Reader(daemon, "load/", 1) for _ in range(SLEEPERS)]
        with selectors.DefaultSelector() as ready:
            for reader in readers:
                ready.register(reader.sock, selectors.EVENT_READ, reader)
            before = daemon.memory()
            body = [
                datagram("relay02/load/1", 1 + n, f"load/{n % CHANNELS}", b"%08d" % n + PAYLOAD)
                for n in range(MESSAGES)
            ]
            begun = time.monotonic()
            sent = 0
            while sent < MESSAGES or any(reader.next < MESSAGES for reader in readers):
                # Never so far ahead that the kernel has no room: a burst is for another test.
                ahead = min(reader.next for reader in readers) + 1000
                due = min(MESSAGES, ahead, int((time.monotonic() - begun) * RATE))
                if sent < due:
                    wire.send(*body[sent : min(due, sent + 50)])
                    sent = min(due, sent + 50)
                for key, _ in ready.select(0 if sent < due else 0.001):
                    key.data.read()
                assert time.monotonic() < begun + 100, "the readers do not get what they should"
            grown = daemon.memory() - before
        assert all(reader.got == MESSAGES // CHANNELS and not reader.lost for reader in readers)
        assert daemon.metric("socket_drops_total") == 0
        # What waits is at most the quota; what it costs beyond its bytes is bounded by the number of messages.
        assert daemon.metric("queue_bytes") <= SLEEPERS * QUEUE_BYTES
        assert grown < SLEEPERS * (QUEUE_BYTES + 1024 * 200) + (8 << 20)
        dropped = daemon.metric("deliveries_dropped_total")
        assert dropped > 0
        for sleeper in sleepers:
            wait(sleeper.has_all, "a sleeper to wake")
            assert sleeper.got + sleeper.lost == sleeper.next == MESSAGES
            assert sleeper.got >= 278
        assert sum(sleeper.lost for sleeper in sleepers) == dropped
        # The loss is logged with program, process, user and pattern: once, and then counted.
        program = Path("/proc/self/comm").read_text().strip()
        reported = f"{program} (pid {os.getpid()}, uid {os.geteuid()}) does not read fast enough"
        assert 0 < daemon.output().count(reported) < 10
        assert "'load/'" in daemon.output()
        for client in (*readers, *sleepers):
            client.sock.close()
