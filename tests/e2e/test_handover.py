"""A daemon that is stopped, killed and aborted under load, which its clients do not notice."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bccnd
from bccnd.core.wire import frames
from bccnd.native.buffers import scan
from tests.e2e.harness import PATIENCE, Wire, datagram, seqpacket, wait
from tests.e2e.supervisor import Supervisor
from tests.support import BROADCAST, free_port, kernel_drops, need_root

SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35
ROUNDS = 12
#: messages that may be under way: a client's queue holds more
MOST = 500


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    if not scan.COMPILED:
        pytest.skip("a plain build keeps nothing over a restart")
    with Supervisor(tmp_path / "a") as one:
        one.start()
        yield one


@pytest.mark.skipif(scan.COMPILED, reason="a compiled build keeps connections")
def test_a_plain_build_restarts_like_any_program(tmp_path: Path) -> None:
    with Supervisor(tmp_path / "a") as supervisor:
        # What a compiled build has stored is closed, so that its clients connect again.
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        supervisor.store = {
            "client-1": [theirs.detach(), os.memfd_create("client-1")],
            "sources-1": [os.memfd_create("sources-1")],
            "ledger": [os.memfd_create("ledger")],
        }
        supervisor.start()
        with ours:
            ours.settimeout(PATIENCE)
            assert ours.recv(1) == b""
        before = Witness(str(supervisor.bus), b"a/")
        supervisor.again(signal.SIGTERM)
        with Wire(supervisor.port) as wire, supervisor.connect("a/") as client:
            client.sync(PATIENCE)
            wire.send(datagram("relay02/x/1", 1, "a/b", b"x"))
            assert client.receive(PATIENCE)
        before.take(1)
        before.sock.close()
        assert before.ended
        assert supervisor.store == {}
        assert supervisor.output().count("keeps no connections over a restart") == supervisor.starts == 2


class Witness:
    """A client that keeps what it gets; a slow one reads only now and then."""

    def __init__(self, path: str, *patterns: bytes, batch: bool = False, slow: bool = False) -> None:
        self.slow = slow
        self.sock = seqpacket(path)
        for pattern in patterns:
            self.sock.send(b"SUB " + pattern)
        if batch:
            self.sock.send(b"CMSG !/bccn/batch/on")
        self.sock.send(b"CMSG !/bccn/sync\0")
        while not self.sock.recv(65536).startswith(b"CMSG !/bccn/sync"):
            pass
        self.sock.setblocking(False)
        #: what came: payloads, and numbers of messages that were lost in that place
        self.got: list[bytes | int] = []
        #: how many messages of the two publishers came or are known to be lost
        self.count = 0
        self.ended = False

    def take(self, most: int) -> bool:
        """Read up to so many packets; whether there were that many."""
        for _ in range(most):
            try:
                packet = self.sock.recv(500_000)
            except BlockingIOError:
                return False
            if not packet:
                self.ended = True
                return False
            self._keep(packet)
        return True

    def _keep(self, packet: bytes) -> None:
        if packet.startswith(b"MSGS "):
            for one in frames.read_batch(packet):
                self._keep(one)
        else:
            key, _, payload = packet.partition(b"\0")
            assert key.startswith(b"MSG ") or key == b"CMSG !/bccn/gap", packet
            self.got.append(payload if key.startswith(b"MSG ") else int(payload))
            self.count += int(payload) if key.startswith(b"CMSG ") else payload[:1] in (b"r", b"l")

    def of(self, kind: bytes) -> list[int]:
        """The numbers of the messages of one publisher, as they came."""
        return [int(one[1:]) for one in self.got if isinstance(one, bytes) and one.startswith(kind)]

    @property
    def missing(self) -> int:
        return sum(one for one in self.got if isinstance(one, int))


class Load:
    """Two publishers, one on the segment and one on the bus, and witnesses of what they publish."""

    def __init__(self, supervisor: Supervisor, chance: random.Random) -> None:
        self._supervisor = supervisor
        self._chance = chance
        self._udp = dict(supervisor.passed)["udp"]
        path = str(supervisor.bus)
        self.witnesses = [
            Witness(path, *patterns, batch=number % 3 == 1, slow=number % 4 == 3)
            for number, patterns in enumerate([(b"a/", b"l/"), (b"a/*", b"a/b", b"l/x"), (b"",)] * 3)
        ]
        self._counted = list(self.witnesses)
        self._quick = [one for one in self.witnesses if not one.slow]
        # A client that connects in the very moment in which the daemon dies may have to connect again.
        self._publisher = Witness(path).sock
        self._publisher.setblocking(True)
        self.sent = {b"r": 0, b"l": 0}
        self._over = threading.Event()

    def _may_go_on(self) -> bool:
        """Wait until little is under way; false when the load is over."""
        while not self._over.is_set():
            if sum(self.sent.values()) - min(one.count for one in self._quick) < MOST:
                return True
            time.sleep(0.001)
        return False

    def _remote(self) -> None:
        with Wire(self._supervisor.port) as wire:
            while self._may_go_on():
                for _ in range(self._chance.choice((1, 2, 3))):
                    self.sent[b"r"] += 1
                    one = datagram("relay02/x/1", self.sent[b"r"], "a/b", b"r%d" % self.sent[b"r"])
                    wire.send(*[one] * self._chance.choice((1, 1, 2)))
                time.sleep(self._chance.choice((0.002, 0.008)))

    def _local(self) -> None:
        while self._may_go_on():
            for _ in range(self._chance.choice((1, 3, 8))):
                self.sent[b"l"] += 1
                self._publisher.send(b"MSG l/x\0l%d" % self.sent[b"l"])
            time.sleep(self._chance.choice((0.01, 0.03)))

    def _read(self) -> None:
        while not self._over.is_set():
            more = [one.take(50) for one in self.witnesses if not one.slow]
            if self._chance.random() < 0.01:
                more += [one.take(20) for one in self.witnesses if one.slow]
            if not any(more):
                time.sleep(0.001)

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=work) for work in (self._remote, self._local, self._read)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
        self._read_the_rest()
        assert kernel_drops(self._udp) == 0

    def _read_the_rest(self) -> None:
        """Read until everything is accounted for, and nothing more comes."""
        deadline = time.monotonic() + PATIENCE
        still = time.monotonic() + 0.5
        while time.monotonic() < min(still, deadline):
            more = [one.take(100) for one in self.witnesses]
            if any(more) or any(one.count < sum(self.sent.values()) and not one.ended for one in self._counted):
                still = time.monotonic() + 0.5
        for one in self.witnesses:
            one.sock.close()
        self._publisher.close()

    def check(self) -> None:
        """Each message once and in order, and every one that is missing told."""
        everything = sum(self.sent.values())
        for number, one in enumerate(self.witnesses):
            remote, local = one.of(b"r"), one.of(b"l")
            assert not one.ended, number
            assert remote == sorted(set(remote)), number
            assert local == sorted(set(local)), number
            assert len(remote) + len(local) + one.missing == everything, number
            if not one.slow:
                assert one.missing == 0, number


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [[signal.SIGKILL], [signal.SIGTERM], [signal.SIGABRT, signal.SIGKILL, signal.SIGTERM]], ids=str
)
def test_clients_notice_nothing_whatever_the_daemon_dies_of(supervisor: Supervisor, how: list[int]) -> None:
    chance = random.Random(str(how))
    load = Load(supervisor, chance)
    with Wire(supervisor.port) as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        with load.running():
            for _ in range(ROUNDS):
                time.sleep(chance.random() * 0.15)
                supervisor.again(chance.choice(how))
        heard = list(wire.rest())
    load.check()
    # What was published here went out once: a second copy could come to others so late that it is news to them.
    out = [int(one.partition(b"]")[2].split(b":")[1]) for one in heard if b":l/x|" in one]
    assert out == list(range(out[0], out[0] + load.sent[b"l"]))
    assert supervisor.output().count("taken over: ") == ROUNDS
    assert "left out of what" not in supervisor.output()


@pytest.mark.slow
def test_links_notice_nothing_either(supervisor: Supervisor) -> None:
    # What waits for longer than the horizon stays on this host; on a busy machine a start may take as long.
    supervisor.configure({"dedup": {"horizon": "30s"}})
    supervisor.again(signal.SIGTERM)
    chance = random.Random(2)
    load = Load(supervisor, chance)
    path = str(supervisor.bus)
    bringer, carrier = Witness(path), Witness(path, frames.LINK, batch=True)
    bringer.sock.setblocking(True)
    load.witnesses += [carrier]
    brought = 0
    with Wire(supervisor.port) as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        with load.running():
            for _ in range(ROUNDS):
                supervisor.end(signal.SIGKILL)
                supervisor.start()
                until = time.monotonic() + chance.random() * 0.15
                while time.monotonic() < until:
                    brought += 1
                    raw = datagram("relay09/y/1", brought, "a/b", b"k%d" % brought)
                    # Two ways bring the same, as in every mesh.
                    for way in (7, 8):
                        bringer.sock.send(frames.arrived("nng", way, time.time_ns(), "192.0.2.1:1", raw))
                    time.sleep(0.003)
        heard = list(wire.rest())
    bringer.sock.close()
    everything = list(range(1, brought + 1))
    for one in load.witnesses[:-1]:
        got = one.of(b"k")
        assert got == sorted(set(got))
        assert one.slow or got == everything
    carried = [one.partition(b"|") for one in carrier.got if isinstance(one, bytes)]
    assert len(carried) == len(carrier.got), "nothing was lost"
    bodies = [(way, raw.partition(b"|")[2][:1], int(raw.partition(b"|")[2][1:])) for way, _, raw in carried]
    for kind, last in ((b"k", brought), (b"r", load.sent[b"r"]), (b"l", load.sent[b"l"])):
        assert [number for _, one, number in bodies if one == kind] == list(range(1, last + 1)), kind
    assert {way for way, one, _ in bodies if one == b"k"} <= {b"7", b"8"}
    assert {way for way, one, _ in bodies if one != b"k"} == {b"0"}
    assert [int(one.rpartition(b"|k")[2]) for one in heard if b"relay09/y/1:" in one] == everything


@pytest.mark.slow
def test_a_daemon_that_dies_again_and_again_while_it_takes_over_loses_nothing(supervisor: Supervisor) -> None:
    chance = random.Random(1)
    load = Load(supervisor, chance)
    with load.running():
        for _ in range(3):
            supervisor.end(signal.SIGKILL)
            for _ in range(5):
                supervisor.process = supervisor.spawn()
                time.sleep(0.1 + chance.random() * 0.25)
                supervisor.end(signal.SIGKILL)
            supervisor.start()
            time.sleep(0.1)
    load.check()


def soon_after_boot() -> list[str]:
    """What starts a command with a monotonic clock that is near zero."""
    need_root("a time namespace")
    offset = f"--monotonic=-{int(time.monotonic())}"
    command = ["unshare", "--time", offset]
    clock = [*command, sys.executable, "-c", "import time; print(time.monotonic())"]
    found = subprocess.run(clock, capture_output=True, check=False)
    if found.returncode or float(found.stdout) > 60:
        pytest.skip("this kernel has no time namespaces that begin with a new program")
    return command


@pytest.mark.root
def test_a_wall_clock_that_is_set_at_boot_leaves_the_trackers_intact(tmp_path: Path) -> None:
    """Datagrams that wait meanwhile seem to have arrived before the boot."""
    if not scan.COMPILED:
        pytest.skip("a plain build keeps nothing over a restart")
    with Supervisor(tmp_path / "a") as supervisor, Wire(supervisor.port) as wire:
        # Otherwise the kernel may stamp the datagram when it is read.
        supervisor.passed[1][1].setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        time.sleep(0.1)
        wire.send(datagram("relay02/x/1", 5, "a/b", b"early"))
        time.sleep(1.5)
        supervisor.prefix = soon_after_boot()
        supervisor.start()
        wait(lambda: supervisor.verdicts() == {"accepted": 1}, "the early datagram")
        wire.send(datagram("relay02/x/2", 5, "a/b", b"later"))
        wait(lambda: supervisor.verdicts() == {"accepted": 2}, "the later datagram")
        for _ in range(2):
            supervisor.again(signal.SIGKILL)
            assert supervisor.metric("state_dropped_total") == 0
            assert supervisor.metric("sources") == 2


def test_what_a_client_has_asked_for_is_still_in_force(supervisor: Supervisor) -> None:
    with supervisor.connect("a/", "a/", "!/bccn/liveness/") as client, Wire(supervisor.port) as wire:
        client.tag("blue")
        client.echo(False)
        client.local(True)
        client.unsubscribe("a/")
        before = client.identity()
        assert supervisor.metric("clients_taken_over") == 0
        supervisor.again(signal.SIGKILL)
        assert supervisor.metric("clients_taken_over") == 1
        assert supervisor.metric("state_dropped_total") == supervisor.metric("clients_not_kept_total") == 0
        assert client.identity() == before
        assert before.endswith("/blue")
        client.publish("a/mine", b"not for me, and not for the segment")
        assert client.sync(PATIENCE) == []
        assert list(wire.rest()) == []
        wire.send(datagram("relay02/x/1", 1, "a/b", b"for me"))
        found = client.receive(PATIENCE)
        assert isinstance(found, bccnd.Message)
        assert (found.src, found.payload) == ("relay02/x/1", b"for me")
        client.unsubscribe("a/")
        assert client.sync(PATIENCE) == []
        supervisor.again(signal.SIGTERM)
        wire.send(datagram("relay02/x/1", 2, "a/b", b"no longer"))
        assert client.sync(PATIENCE) == []
        assert client.receive(0.2) is None


def test_files_in_memory_that_cannot_be_written_are_no_leak(supervisor: Supervisor) -> None:
    with Wire(supervisor.port) as wire, supervisor.connect("kept") as kept:
        before = len(os.listdir(f"/proc/{supervisor.pid}/fd"))
        resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
        wire.send(datagram("relay02/x/1", 1, "kept", "x"))
        assert kept.receive(PATIENCE)
        for _ in range(3):
            with supervisor.connect("unkept") as bus:
                bus.sync(PATIENCE)
        wait(lambda: len(os.listdir(f"/proc/{supervisor.pid}/fd")) <= before + 2, "the end of the connections")
        assert supervisor.metric("clients_not_kept_total") >= 3
        resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        with supervisor.connect("late") as late:
            late.sync(PATIENCE)
            supervisor.again(signal.SIGKILL)
            wire.send(datagram("relay02/x/1", 2, "late", "y"))
            assert late.receive(PATIENCE)


def test_drops_of_the_kernel_are_logged_once_over_restarts(tmp_path: Path) -> None:
    if not scan.COMPILED:
        pytest.skip("a plain build keeps nothing over a restart")
    segment = {"address": BROADCAST, "port": free_port(), "receive_buffer": "16KiB"}
    with Supervisor(tmp_path / "a", {"segments": [segment]}) as supervisor, Wire(supervisor.port) as wire:
        udp = dict(supervisor.passed)["udp"]

        def flood() -> int:
            """Overflow the buffer; return how many datagrams the kernel has dropped so far."""
            wire.send(*[b"x" * 1000] * 100)
            return kernel_drops(udp)

        def logged() -> list[int]:
            return [int(count) for count in re.findall(r"kernel dropped (\d+) datagrams", supervisor.output())]

        supervisor.start()
        supervisor.signal(signal.SIGSTOP)
        first = flood()
        supervisor.signal(signal.SIGCONT)
        wait(lambda: logged() == [first], "the first line")
        supervisor.again(signal.SIGKILL)
        supervisor.end(signal.SIGTERM)
        second = flood()
        supervisor.start()
        wait(lambda: len(logged()) == 2, "the second line")
        assert logged() == [first, second - first]
        assert supervisor.metric("socket_drops_total") == second
