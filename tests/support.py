"""What the tests of the edge share: a real loop turned by hand or in a thread, a real bus on it, plain clients.

Turning by hand is what makes these tests exact: between two turns nothing moves, so that a test can put packets into
sockets, end a client, look at a queue, and say what must have become of all of it.
"""

from __future__ import annotations

import hmac
import itertools
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, Self

import pytest
from hypothesis import settings

from bccnd.bus.client_acceptor import Entrance
from bccnd.bus.clients.access_rules import Access, Admission, Rule, admit_all
from bccnd.bus.clients.client import Client
from bccnd.bus.requests.client_requests import Listing
from bccnd.bus.requests.recorder_reports import RecorderReports
from bccnd.bus.server import Bus
from bccnd.config.schema import BusSettings
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.receivers import Receivers
from bccnd.core.matching.routes import Routes
from bccnd.core.observing.counters import SegmentCounters
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.sending.datagram_builder import DatagramBuilder
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import frames
from bccnd.core.wire.identity_format import identity, tagged
from bccnd.net.listen import listen_abstract, listen_unix
from bccnd.net.loop import READABLE, Loop
from bccnd.net.segment_sender import SegmentSender
from tests.rules import BusRules, bus_limits, dedup_rules

ROOT: Final = Path(__file__).parents[1]
#: generous, because it only matters when something is broken
PATIENCE: Final = 90.0
#: every interface takes it, and nothing leaves this host
BROADCAST: Final = "127.255.255.255"
#: what the kernel keeps for one socket at the least; made so small, a client that does not read is full at once
TINY: Final = 4608
#: nobody in particular; what a test does under this uid it does without root's rights
NOBODY: Final = 65_534


class Closing:
    """What is closed where its ``with`` ends."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def turn(loop: Loop, rounds: int = 1) -> None:
    """Let the loop go round so many times, without waiting for anything."""
    for _ in range(rounds):
        loop.soon(loop.stop)
        loop.run()


def turn_until(loop: Loop, done: Callable[[], object], what: str = "it") -> None:
    """Turn until ``done()`` is true."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        turn(loop)


def wait(done: Callable[[], object], what: str = "it", patience: float = PATIENCE) -> None:
    """Wait until ``done()`` is true, while somebody else does the work.

    Looks often at first and then less so: to read a page of metrics costs the daemon more than what it is waited for.
    """
    deadline, pause = time.monotonic() + patience, 0.002
    while not done():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(pause)
        pause = min(1.3 * pause, 0.05)


@contextmanager
def without_root(folder: Path) -> Iterator[None]:
    """Go on without root's rights, as the owner of ``folder``; without root to begin with, nothing changes."""
    if os.geteuid() != 0:
        yield
        return
    os.chown(folder, NOBODY, -1)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def cannot_here(why: str) -> NoReturn:
    """Skip a test that cannot be made here; where CI is set it must be."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must run this: {why}")
    pytest.skip(why)


def need_root(why: str) -> None:
    if os.geteuid() != 0:
        cannot_here(f"not root: {why}")


def datagram(src: str, seq: int, chan: str, payload: bytes | str = b"", key: bytes | None = None) -> bytes:
    """A BCCN1 datagram, signed if there is a key; written by hand, since the product's own builder is under test."""
    data = payload.encode() if isinstance(payload, str) else payload
    body = f"{src}:{seq}:{chan}|".encode() + data
    check = b":hmac=" + hmac.digest(key, body, "sha256")[:8].hex().encode() if key else b""
    return b"BCCN1[%d%b]%b" % (len(body), check, body)


#: below the ports that the kernel gives to sockets that ask for none in particular; where test processes share a
#: network, each has its own thousand
_PORTS: Final = itertools.count(10_000 + 1000 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")))


def free_port() -> int:
    """A port that no other test uses: each test process has a network namespace of its own, and counts."""
    return next(_PORTS)


def examples(count: int) -> int:
    """How many examples a property is tried on: ``count`` in the profile ``full``, a quarter in ``quick``."""
    return count if settings.get_current_profile_name() == "full" else max(count // 4, 5)


class Who(NamedTuple):
    """As whom another process is to connect; it takes root to be somebody else."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    program: bytes = b"somebody"


#: two who are nobody in particular, and not in each other's groups
ANN: Final = Who(4001, 5001, program=b"ann")
BOB: Final = Who(4002, 5002, program=b"bob")


class Process:
    """A process of another user that has opened a connection and handed us the descriptor; it lives until `end`."""

    def __init__(self, who: Who, address: str | bytes) -> None:
        need_root("only root can be somebody else")
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            with suppress(BaseException):
                # What it has inherited must not keep other connections open.
                os.closerange(3, theirs.fileno())
                os.closerange(theirs.fileno() + 1, 1024)
                self._connect(who, address, theirs)
            os._exit(0)
        theirs.close()
        self._line = ours
        _, (self.descriptor, *_), _, _ = socket.recv_fds(ours, 1, 1)

    @staticmethod
    def _connect(who: Who, address: str | bytes, line: socket.socket) -> None:
        # First of all, as /proc is closed to who has changed his user.
        Path("/proc/self/comm").write_bytes(who.program)
        os.setgroups(who.groups)
        os.setgid(who.gid)
        os.setuid(who.uid)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(address)
        socket.send_fds(line, [b"x"], [sock.fileno()])
        sock.close()
        line.recv(1)

    def end(self) -> None:
        """End it; when this returns, its pid is nobody's."""
        if self._line.fileno() >= 0:
            self._line.close()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def unhurried(bus: Bus) -> None:
    """Let no client's turn end early, however slow the machine is."""
    bus.quota.round_seconds = 3600.0


class FakeSegment(SegmentSender):
    """Keeps what it is to send in ``datagrams``; ``answer`` is None, or the name of the error that each send meets."""

    def __init__(self) -> None:
        super().__init__(SegmentCounters("lan"), -1, b"")
        self.datagrams: list[bytes] = []
        self.answer: str | None = None

    def send(self, datagram: bytes) -> str | None:
        self.datagrams.append(datagram)
        return self.answer


class Hub(Closing):
    """A real bus on a real loop, with nothing behind it: what it would broadcast is kept in ``sent``.

    Beside its path it listens at an abstract address for each of ``others``: the dialect that is spoken there and whom
    it admits. ``addresses`` holds all of them, the path first.
    """

    def __init__(
        self,
        folder: Path,
        *,
        limits: BusSettings | None = None,
        dialect: str = "path",
        rules: Iterable[Rule] = (),
        bridged: bool = True,
        others: Iterable[tuple[str, Admission]] = (),
        listings: Mapping[bytes, Listing] | None = None,
        trace: Callable[[bytes], dict[str, Any]] | None = None,
        on_quiet: Callable[[], None] = lambda: None,
        recorders: RecorderReports | None = None,
    ) -> None:
        self.dialect = DIALECTS[dialect]
        self.path = str(folder / "bus.sock")
        self.segment = FakeSegment()
        self.sent = self.segment.datagrams
        self.sources = TrackerTable(dedup_rules())
        self.routes: Routes[int] = Routes(DIALECTS[dialect], forms=bridged)
        self.loop = Loop()
        entrances = [Entrance(listen_unix(self.path, 0o600, None), self.dialect, admit_all)]
        entrances += [Entrance(listen_abstract(), DIALECTS[name], admits) for name, admits in others]
        self.addresses: list[str | bytes] = [one.listener.getsockname() for one in entrances]
        self.builder = DatagramBuilder(IntegrityChecker(), self.sources)
        self.in_force = BusRules(limits or bus_limits(), self.access(rules))
        self.bus = Bus(
            self.loop,
            entrances,
            self.routes,
            partial(identity, b"relay01"),
            tagged,
            self.in_force,
            builder=self.builder if bridged else None,
            segments=[self.segment],
            listings=listings,
            trace=trace,
            on_quiet=on_quiet,
            recorders=recorders,
        )
        unhurried(self.bus)
        self.peers: list[Peer] = []

    def access(self, rules: Iterable[Rule]) -> Access:
        """Rules, as this daemon has them in force."""
        return Access(rules, self.dialect, os.geteuid(), os.getegid())

    def reload(self, limits: BusSettings | None = None, rules: Iterable[Rule] = ()) -> None:
        """What SIGHUP does; without ``limits`` those in force stay."""
        self.in_force.bus = limits or self.in_force.bus
        self.in_force.access = self.access(rules)
        self.bus.apply_rules()

    def deliver(self, *found: tuple[Iterable[int] | Receivers, bytes]) -> None:
        """Deliver frames to the clients with these descriptors, as one batch of a segment."""
        deliveries = Deliveries()
        for fds, frame in found:
            deliveries.put(fds if isinstance(fds, Receivers) else Receivers(tuple(fds)), frame)
        self.bus.fanout.deliver(deliveries)

    def connect(self, *patterns: bytes, who: Who | None = None, entrance: int | None = None) -> Peer:
        """A client that has been welcomed, and whose patterns are in force: of this process, or as ``who``.

        ``entrance`` is the number of an address; without one, this process takes the first and others the last.
        """
        before = set(self.bus.clients)
        peer = self.knock(who, entrance)
        turn_until(self.loop, lambda: set(self.bus.clients) - before, "the welcome")
        (fd,) = set(self.bus.clients) - before
        peer.client = self.bus.clients[fd]
        for pattern in patterns:
            peer.send(frames.subscribe(pattern))
        assert peer.all() == []
        return peer

    def knock(self, who: Who | None = None, entrance: int | None = None) -> Peer:
        """A client that has connected and has not been welcomed yet."""
        return Peer(self, who, self.addresses[entrance if entrance is not None else 0 if who is None else -1])

    def turn(self, rounds: int = 3) -> None:
        turn(self.loop, rounds)

    def settle(self) -> None:
        """Turn until all that clients have sent was taken, and what came of it was done."""
        deadline = time.monotonic() + PATIENCE
        unread = True
        while unread:
            assert time.monotonic() < deadline, "there is no end to what clients have sent"
            self.turn(1)
            poll = select.poll()
            for client in self.bus.clients.values():
                if client.watched & READABLE:
                    poll.register(client.sock, select.POLLIN)
            unread = bool(poll.poll(0))
        self.turn(1)

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
        self.bus.close()
        self.loop.close()


class Peer:
    """A bare client of a hub: a SEQPACKET socket, packets in and out. ``client`` is how the bus sees it; ``process``
    is who opened it, if that was not this process."""

    client: Client

    def __init__(self, hub: Hub, who: Who | None, address: str | bytes) -> None:
        self.hub = hub
        self._syncs = 0
        self.process = None if who is None else Process(who, address)
        descriptor = None if self.process is None else self.process.descriptor
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=descriptor)
        hub.peers.append(self)
        self.sock.setblocking(False)
        # So that it can send what is too large for the bus.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        if self.process is None:
            self.sock.connect(address)

    def send(self, *packets: bytes) -> None:
        """Send, and turn the hub whenever the socket is full."""
        for packet in packets:
            while True:
                try:
                    self.sock.send(packet)
                    break
                except BlockingIOError:
                    self.hub.turn(1)

    def publish(self, key: bytes, *payloads: bytes) -> None:
        self.send(*(frames.message(key, payload) for payload in payloads))

    def receive(self) -> bytes:
        """The next packet; turns the hub until there is one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.sock.recv(1 << 20)
            except BlockingIOError:
                assert time.monotonic() < deadline, "waited in vain for a packet"
                self.hub.turn(1)

    def waiting(self) -> list[bytes]:
        """The packets that are there now, without a turn of the hub; the end is none."""
        packets = []
        with suppress(BlockingIOError):
            while packet := self.sock.recv(1 << 20):
                packets.append(packet)
        return packets

    def all(self) -> list[bytes]:
        """Every packet that all that was sent so far, by whomever, has brought: those before the echo of a sync."""
        self.hub.settle()
        self._syncs += 1
        echo = frames.control(frames.SYNC, b"%d of this test" % self._syncs)
        self.send(echo)
        packets = []
        while (packet := self.receive()) != echo:
            assert packet, "the bus has closed the connection"
            packets.append(packet)
        return packets

    def ended(self) -> bool:
        """Whether the bus has closed this connection and all that it sent has been taken."""
        try:
            return self.sock.recv(1 << 20, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.sock.close()
        if self.process is not None:
            self.process.end()


def own_identity() -> bytes:
    """The identity of clients of this process, without a tag."""
    return b"relay01/%b/%d" % (Path("/proc/self/comm").read_bytes().rstrip(b"\n"), os.getpid())


def slow(hub: Hub, *patterns: bytes, who: Who | None = None) -> Peer:
    """A client that does not read and for which the kernel keeps next to nothing."""
    peer = hub.connect(*patterns, who=who)
    peer.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TINY)
    return peer


def dropped(hub: Hub) -> dict[str, int]:
    """What was dropped so far, by reason."""
    return {reason: count for reason, count in hub.bus.counters.dropped.all().items() if count}


def messages(packets: Iterable[bytes], key: bytes) -> list[bytes]:
    """The payloads of the messages under a key."""
    found = []
    for packet in packets:
        verb, name, payload = frames.read(packet)
        if verb == frames.MSG and name == key:
            found.append(payload)
    return found


def gaps(packets: Iterable[bytes]) -> int:
    """How many messages the gaps among the packets tell of."""
    total = 0
    for packet in packets:
        verb, key, payload = frames.read(packet)
        if verb == frames.CMSG and key == frames.GAP:
            total += int(payload)
    return total


def refusals(packets: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Reason and key of the errors among the packets."""
    found = []
    for packet in packets:
        verb, key, payload = frames.read(packet)
        if verb == frames.CMSG and key == frames.ERROR:
            reason, _, about = payload.partition(b" ")
            found.append((reason, about))
    return found
