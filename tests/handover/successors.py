"""A bus that can be killed and restarted; only what systemd would keep outlives it."""

from __future__ import annotations

import gc
import os
import random
import select
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

from bccnd.bus.client_restore import replay_input, restore_clients
from bccnd.bus.clients.access import Rule, admit_all
from bccnd.bus.clients.client import BusLimits, Client
from bccnd.bus.incoming.segment_reader import SegmentReader
from bccnd.bus.server import Bus, Entrance
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Routes
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.observing.latency_histogram import LatencyHistogram
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.sending.egress import Egress
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.liveness import Liveness
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import frames
from bccnd.core.wire.identity_format import identity, tagged
from bccnd.daemon.takeover import open_memory
from bccnd.errors import BadFrame
from bccnd.handover.stored_state import Handover
from bccnd.native.memory.inflight_layout import InflightInput
from bccnd.net.listen import listen_abstract, listen_unix
from bccnd.net.loop import READABLE, Loop
from bccnd.net.segment import Peers, Segment, SegmentOptions
from tests.bus.packets import unbatched
from tests.rules import bus_limits, dedup_rules, heartbeat_rules
from tests.support import BROADCAST, ROOT, Hub, Peer, free_port, unhurried

_OURS: Final = str(ROOT / "bccnd") + os.sep


class Killed(BaseException):
    """Ends a daemon; none of its code may catch it."""


class Store:
    """Keeps copies of descriptors by name, as systemd does: each open file once."""

    def __init__(self) -> None:
        self.kept: dict[str, list[int]] = {}
        #: whether `store` refuses
        self.full = False
        #: the name that it refuses
        self.refused = ""

    def store(self, name: str, *descriptors: int) -> bool:
        if self.full or name == self.refused:
            return False
        held = self.kept.setdefault(name, [])
        held += [os.dup(fd) for fd in descriptors if not any(os.path.sameopenfile(fd, one) for one in held)]
        return True

    def forget(self, name: str) -> None:
        for fd in self.kept.pop(name, ()):
            os.close(fd)

    def passed(self) -> list[tuple[str, int]]:
        """Return what a new process gets: copies, in random order."""
        found = [(name, os.dup(fd)) for name, fds in self.kept.items() for fd in fds]
        random.Random(len(found)).shuffle(found)
        return found

    def put(self, name: str, *descriptors: int) -> None:
        """Store these descriptors without copying them."""
        self.kept.setdefault(name, []).extend(descriptors)

    def file(self, name: str) -> int:
        """Return the descriptor of this name that is a file."""
        (found,) = [fd for fd in self.kept[name] if not stat.S_ISSOCK(os.fstat(fd).st_mode)]
        return found

    def close(self) -> None:
        for name in list(self.kept):
            self.forget(name)

    __del__ = close


class Trap:
    """Raises Killed at the ``at``-th line of the package that is not compiled; with 0 it only counts ``lines``."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.lines = 0

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._on_line if frame.f_code.co_filename.startswith(_OURS) else None

    def _on_line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                raise Killed
        return self._on_line

    @contextmanager
    def armed(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)


class Site(Hub):
    """A hub whose daemon can be killed and restarted; with ``segment`` it receives datagrams from real sockets."""

    handover: Handover

    def __init__(
        self,
        folder: Path,
        *,
        limits: BusLimits | None = None,
        dialect: str = "path",
        rules: Iterable[Rule] = (),
        others: Iterable[str] = (),
        segment: bool = False,
    ) -> None:
        self.path = str(folder / "bus.sock")
        self.sent: list[bytes] = []
        self.answer = None
        #: whether the next daemon finds that the message of the unfinished input was broadcast
        self.was_broadcast = False
        self.limits = limits or bus_limits()
        self.rules = tuple(rules)
        self.dialect = DIALECTS[dialect]
        self.names = [dialect, *others]
        self.store = Store()
        self._peers: list[Peer] = []
        self._listeners = [listen_unix(self.path, 0o600, None), *(listen_abstract() for _ in others)]
        self.addresses = [one.getsockname() for one in self._listeners]
        self.options = self.wire = None
        if segment:
            self.options = SegmentOptions("here", BROADCAST, free_port(), receive_buffer=1 << 18)
            self.wire = Segment(self.options).sock
            self.program = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.program.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            self.program.bind(("127.0.0.1", 0))
        self.reachable: list[Callable[[], object]] = []
        self.start()

    def start(self, trap: Trap | None = None) -> None:
        """Start a daemon, as `bccnd.daemon` does; ``trap`` may kill it meanwhile."""
        with nullcontext() if trap is None else trap.armed():
            self._start()

    def _start(self) -> None:
        undo = self.reachable
        self.loop = Loop()
        undo.append(partial(_close_loop, self.loop))
        handover = self.handover = Handover.__new__(Handover)
        undo.append(partial(drop, handover))
        handover.__init__(self.store, self.store.passed(), self.loop.soon)  # type: ignore[misc]
        self.memory = open_memory(handover, dedup_rules(max_sources=1000), heartbeat_rules())
        self.sources = TrackerTable(dedup_rules(), self.memory)
        self.anonymous = AnonymousDedup(2.0, self.memory)
        self.liveness = Liveness(self.sources, heartbeat_rules(), time.monotonic())
        self.routes = Routes(self.dialect)
        self.egress = Egress(IntegrityChecker(), self.sources)
        self.ingress: Ingress = Ingress(IntegrityChecker(), self.sources, self.anonymous, self.routes)
        entrances = []
        for listener, name in zip(self._listeners, self.names, strict=True):
            own = listener.dup()
            own.setblocking(False)
            undo.append(own.close)
            entrances.append(Entrance(own, DIALECTS[name], admit_all))
        bus = self.bus = Bus.__new__(Bus)
        undo.append(partial(_drop_bus, bus))
        bus.__init__(  # type: ignore[misc]
            self.loop,
            entrances,
            self.routes,
            partial(identity, b"relay01"),
            tagged,
            self.access(self.rules),
            self.limits,
            egress=self.egress,
            broadcast=self._broadcast,
            handover=handover,
            memory=self.memory,
        )
        unhurried(bus)
        unfinished = handover.unfinished
        self.sources.load(time.monotonic(), time.time_ns() // 1000)
        self.anonymous.load()
        self.liveness.load(time.monotonic())
        self.memory.record()
        had = restore_clients(bus, handover)
        if unfinished is not None:
            self.memory.begin(unfinished.serial)
            replay_input(bus, handover, unfinished, had, self._replay_datagrams, broadcast=self.was_broadcast)
        if self.options is not None and self.wire is not None:
            counters = SegmentCounters(self.options.name, self.memory)
            segment = self.segment = Segment(self.options, self.wire.dup(), counters=counters)
            undo.append(segment.close)
            segment.record_receives(handover.inflight, 0)
            self.counters = segment.counters
            intake = SegmentReader(segment, self.ingress, bus.fanout, LatencyHistogram(), bus.transaction)
            self.loop.watch(intake.fileno(), READABLE, intake)
        for peer in self._peers:
            if hasattr(peer, "client"):
                peer.client = self.by_number(peer.client.number) or peer.client

    def _replay_datagrams(self, unfinished: InflightInput) -> None:
        peers = Peers.of(memoryview(unfinished.names), unfinished.name_size)
        stamps = [unfinished.stamps[0] or time.time_ns(), *unfinished.stamps[1:]]
        now = unfinished.now or time.monotonic()
        counters = SegmentCounters(unfinished.label.decode(), self.memory)
        deliveries = Deliveries()
        self.ingress.feed_late(deliveries, counters, list(unfinished.datagrams), peers, now, stamps)
        self.bus.fanout.deliver(deliveries)

    def kill(self) -> None:
        """End the daemon as SIGKILL does: only its descriptors are closed."""
        while self.reachable:
            self.reachable.pop()()

    def die(self) -> None:
        """Kill the daemon and start another one."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """End the daemon as SIGTERM does."""
        self.bus.stop_accepting()
        self.bus.drain(time.monotonic() + 0.05)
        self.bus.close()
        self.kill()

    def by_number(self, number: int) -> Client | None:
        return next((one for one in self.bus.clients.values() if one.number == number), None)

    def settle(self) -> None:
        super().settle()
        while self.wire is not None and select.select([self.wire], [], [], 0)[0]:
            super().settle()

    def broadcast(self, *datagrams: bytes) -> None:
        """Send datagrams from another program of the segment."""
        assert self.options is not None
        for one in datagrams:
            self.program.sendto(one, (BROADCAST, self.options.port))

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self.kill()
        for sock in (*self._listeners, *((self.wire, self.program) if self.wire is not None else ())):
            sock.close()
        self.store.close()


def _close_loop(loop: Loop) -> None:
    loop._soon.clear()
    loop.close()


def drop(handover: Handover) -> None:
    """Close the descriptors that a hand-over has open."""
    for one in getattr(handover, "clients", ()):
        one.sock.close()
        one.file.close()
    for kept in getattr(handover, "_by_number", {}).values():
        kept.file.close()
    for fd in getattr(handover, "_memories", ()):
        with suppress(OSError):
            os.close(fd)


def _drop_bus(bus: Bus) -> None:
    for client in getattr(bus, "clients", {}).values():
        client.sock.close()
    if hasattr(bus, "identifier"):
        bus.identifier.close()


@contextmanager
def nothing_left_open() -> Iterator[None]:
    """Close what a daemon killed at its start has left open, as the kernel would.

    Nothing of that daemon may be alive at the end: a mapping closes its own copy of a descriptor when it goes, and
    would close a later file of the same number if that copy were closed here.
    """
    before = set(os.listdir("/proc/self/fd"))

    def left() -> list[int]:
        found = []
        for name in set(os.listdir("/proc/self/fd")) - before:
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(("/memfd:", "socket:")):
                    found.append(int(name))
        return found

    yield  # if this raises, the traceback keeps the daemon alive, and nothing is closed
    if left():
        gc.collect()
        for fd in left():
            os.close(fd)


def frames_of(packets: Iterable[bytes]) -> list[bytes]:
    """Return frames, unpacked from batches, with the sender's name alone of its metadata."""
    found = []
    for frame in unbatched(packets):
        verb, key, payload = frames.read(frame)
        with suppress(BadFrame):
            src, seq, _, _, rest = frames.read_meta(payload)
            frame = b"%b %b\0%b:%b|%b" % (verb, key, src, b"seq" if seq else b"0", rest)
        found.append(frame)
    return found


def broadcasts(sent: Iterable[bytes]) -> list[bytes]:
    """Return the broadcasts; each seq of a source must be used for one message, without gaps."""
    last: dict[bytes, tuple[int, dict[int, bytes]]] = {}
    found = []
    for datagram in sent:
        body = datagram.partition(b"]")[2]
        src, number, rest = body.split(b":", 2)
        seq = int(number)
        _, seen = last.get(src, (seq - 1, {}))
        if seq in seen:
            assert seen[seq] == datagram, "one seq for two messages"
            continue
        assert not seen or seq == max(seen) + 1, "a seq was left out, or is too low"
        seen[seq] = datagram
        last[src] = seq, seen
        found.append(src + b" " + rest)
    return found
