"""Records what a killed daemon of a released version leaves for the next one: the files in systemd's descriptor store.

    dpkg -x bccnd_1.0.0_amd64.deb v100
    python -m tests.golden.record_state v100 tests/golden/version_1_0/state

The daemon is that of the package. This program takes the place of systemd, of four clients and of the segment, and
kills the daemon while it processes datagrams. `tests/golden/version_1_0/README.md` says what the files hold.

``moment.json`` has what the files do not show: when the daemon was killed (monotonic), the address of the other host,
src and seq of the datagrams that the daemon sent, the numbers of the input that it was processing, and which of them
each client had received by then.
"""

from __future__ import annotations

import gzip
import json
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.activation import Notified, launch
from tests.e2e.harness import PATIENCE, datagram, seqpacket, wait
from tests.e2e.service import bound_udp
from tests.support import BROADCAST, free_port

#: where the ledger of 1.0.0 has these numbers
_SERIAL, _OPEN, _KIND, _NOW, _SLOTS = 8, 16, 24, 40, 256
#: of each client: its number, the serial of an input, and how many messages of that it has received
_SLOT: Final = struct.Struct("=QQQQ")
_DATAGRAMS: Final = 1
#: datagrams of an input
_BATCH: Final = 4
_PAGE: Final = 4096
_START: Final = "from bccnd.cli.bccnd_main import main; main()"
HEARTBEAT: Final = 0.5
#: clients that only receive, and the names of all that receive datagrams
OTHERS: Final = 5
NAMES: Final = ("client-1", *(f"client-{number}" for number in range(4, 4 + OTHERS)))


class Recording:
    """A daemon of the package in ``package``, and the store that keeps its descriptors."""

    def __init__(self, package: Path, folder: Path) -> None:
        self.port = free_port()
        self.bus = str(folder / "bus.sock")
        self.store: dict[str, list[int]] = {}
        self._manager = Notified(folder / "notify")
        config = folder / "bccnd.yaml"
        settings = {
            "host": "relay01",
            "segments": [{"address": BROADCAST, "port": self.port}],
            "bus": {"path": self.bus, "queue": {"messages": 4}, "patience": "1h"},
            "heartbeat": {"interval": HEARTBEAT},
            "metrics": {"listen": f"127.0.0.1:{free_port()}"},
        }
        config.write_text(json.dumps(settings))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.bus)
        listener.listen()
        datagrams = bound_udp(self.port)
        passed = [("bus", listener.fileno()), ("udp", datagrams.fileno())]
        modules = f"{package}/usr/lib/bccnd:{package}/usr/lib/python3/dist-packages"
        self.process = subprocess.Popen(
            [*launch(passed), sys.executable, "-c", _START, "--config", str(config)],
            pass_fds=[fd for _, fd in passed],
            env={**os.environ, "PYTHONPATH": modules, "NOTIFY_SOCKET": self._manager.address},
            cwd=folder,
        )
        self._ready = False
        wait(self._is_ready, "the daemon to be ready")
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self._out.bind(("127.0.0.1", 0))
        #: the address that these datagrams come from
        self.peer = "{}:{}".format(*self._out.getsockname())
        self._segment = bound_udp(self.port)
        self._segment.settimeout(PATIENCE)

    def _is_ready(self) -> bool:
        self.obey()
        return self._ready

    def obey(self) -> None:
        """Store and forget descriptors as the daemon has asked for."""
        for reported in self._manager.all():
            name = reported.value("FDNAME") or ""
            if reported.value("FDSTORE") == "1":
                self.store.setdefault(name, []).extend(reported.descriptors)
            elif reported.value("FDSTOREREMOVE") == "1":
                for fd in self.store.pop(name, []):
                    os.close(fd)
            self._ready = self._ready or reported.value("READY") == "1"

    def send(self, src: str, chan: str, *numbers: int) -> None:
        """Send datagrams from another host."""
        for number in numbers:
            self._out.sendto(datagram(src, number, chan, f"payload {number}"), (BROADCAST, self.port))

    def sent_on(self, chan: str) -> tuple[str, int]:
        """Return src and seq of the next datagram that the daemon sends on a channel."""
        while True:
            src, seq, rest = self._segment.recv(1 << 16).decode().partition("]")[2].split(":", 2)
            if rest.startswith(f"{chan}|"):
                return src, int(seq)

    def client(self, *packets: bytes) -> socket.socket:
        """Connect a client, send its packets, and wait until they are processed."""
        sock = seqpacket(self.bus)
        for packet in (*packets, b"CMSG !/bccn/sync\0"):
            sock.send(packet)
        while not sock.recv(1 << 16).startswith(b"CMSG !/bccn/sync"):
            pass
        return sock

    def kill_between_receivers(self, src: str, chan: str, start: int, clients: int) -> list[int]:
        """Send datagrams until the daemon is found where it has sent an input to some clients only; then kill it.

        Return the numbers of that input.
        """
        self.obey()
        (fd,) = self.store["ledger"]
        ledger = mmap.mmap(fd, 0)

        def processes() -> bool:
            serial, is_open, kind = (struct.unpack_from("=Q", ledger, at)[0] for at in (_SERIAL, _OPEN, _KIND))
            if not is_open or kind != _DATAGRAMS or not struct.unpack_from("=d", ledger, _NOW)[0]:
                return False
            slots = [_SLOT.unpack_from(ledger, _SLOTS + _SLOT.size * slot) for slot in range(clients)]
            return any(of == serial and received == _BATCH for _, of, received, _ in slots[1:])

        while True:
            numbers = list(range(start, start + _BATCH))
            start += _BATCH
            self.process.send_signal(signal.SIGSTOP)  # so that they come as one input
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
            self.send(src, chan, *numbers)
            self.process.send_signal(signal.SIGCONT)
            deadline = time.monotonic() + 0.02
            while time.monotonic() < deadline and not processes():
                pass
            self.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
            if processes():
                break
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.obey()
        return numbers


def received(sock: socket.socket, numbers: list[int]) -> list[int]:
    """Return which of these numbers a client has received."""
    sock.setblocking(False)
    found: list[int] = []
    while True:
        try:
            packet = sock.recv(1 << 16)
        except BlockingIOError:
            return found
        if not packet:
            return found
        payload = packet.rpartition(b"payload ")[2]
        if payload.isdigit() and int(payload) in numbers:
            found.append(int(payload))


def fill(reader: str, publisher: socket.socket) -> None:
    """Publish until the daemon reads no more from the publisher, as the reader's queue is full."""
    publisher.setblocking(False)
    for number in range(100_000):
        try:
            publisher.send(b"MSG %b\0flood %d" % (reader.encode(), number))
        except BlockingIOError:
            time.sleep(0.2)  # the daemon may only be slow
            try:
                publisher.send(b"MSG %b\0flood %d" % (reader.encode(), number))
            except BlockingIOError:
                return


def pages(fd: int) -> bytes:
    """Return the pages of a file that are not empty, each behind its offset (8 bytes, little endian)."""
    found = []
    size = os.fstat(fd).st_size
    at = 0
    while at < size:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            break
        page = os.pread(fd, _PAGE, at)
        if page.strip(b"\0"):
            found.append(struct.pack("<Q", at) + page)
        at += _PAGE
    return struct.pack("<Q", size) + b"".join(found)


def record(package: Path, out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(package, Path(folder))
        first = recording.client(
            *(b"SUB demo/", b"SUB demo/", b"SUB news/*", b"SUB gone/", b"UNSUB gone/"),
            *(b"CMSG !/bccn/tag\0blue", b"CMSG !/bccn/meta/on", b"CMSG echo/off", b"CMSG blocking/hard/error"),
            b"MSG own/x\0from the first",
        )
        _slow = recording.client(b"SUB flood/", b"CMSG blocking/hard/block")
        publisher = recording.client(b"CMSG !/bccn/local/on")
        others = [recording.client(b"SUB demo/x") for _ in range(OTHERS)]
        recording.client(b"CMSG !/bccn/tag\0left", b"MSG own/y\0from one that leaves").close()
        sent = {chan: recording.sent_on(chan) for chan in ("own/x", "own/y")}
        recording.send("far/app/1", "demo/x", 1, 2, 3, 5, 6)
        recording.send("far/again/2", "demo/again", 50, 51)
        recording.send("far/beat/3", "heartbeat/far/beat/3", 1)
        time.sleep(HEARTBEAT)
        recording.send("far/beat/3", "heartbeat/far/beat/3", 2)
        time.sleep(3)  # longer than the horizon, and than three heartbeats
        recording.send("far/again/2", "demo/again", 1, 2)
        recording.send("?", "demo/y", 0)
        recording.send("far/gap/4", "demo/gap", 10, 12, 13)
        fill("flood/x", publisher)
        numbers = recording.kill_between_receivers("far/app/1", "demo/x", 7, 3 + OTHERS)
        out.mkdir(parents=True, exist_ok=True)
        moment = {
            "monotonic": time.monotonic(),
            "peer": recording.peer,
            "sent": sent,
            "unfinished": numbers,
            "received": {name: received(sock, numbers) for name, sock in zip(NAMES, (first, *others), strict=True)},
        }
        (out / "moment.json").write_text(json.dumps(moment, indent=1) + "\n")
        for name, descriptors in recording.store.items():
            for fd in descriptors:
                if name == "ledger":
                    (out / "ledger.pages.gz").write_bytes(gzip.compress(pages(fd), mtime=0))
                elif os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:"):
                    (out / name).write_bytes(os.pread(fd, os.fstat(fd).st_size, 0))


if __name__ == "__main__":
    record(Path(sys.argv[1]).absolute(), Path(sys.argv[2]))
