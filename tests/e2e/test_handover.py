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
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bccnd.core.wire import frames
from bccnd.native.buffers import scan
from tests.e2e.harness import KEY, PATIENCE, Wire, datagram, seqpacket, wait
from tests.e2e.supervisor import Supervisor
from tests.support import BROADCAST, free_port, kernel_drops, need_root
from tools.soak.streams import MARK, Load, Readers, Witness

SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35
ROUNDS = 12
#: kinds of messages: from the segment and from a client, to all, to this host, and too long for the segment
KINDS = "rlgdL"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    if not scan.COMPILED:
        pytest.skip("a plain build keeps nothing over a restart")
    with Supervisor(tmp_path / "a", patience=120.0) as one:  # the machine may have much else to do
        one.configure({"integrity": {**one.with_key(KEY), "required": False}})
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
        before = Witness("before", str(supervisor.bus), "")
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


@contextmanager
def under_load(supervisor: Supervisor, chance: random.Random, *more: Witness) -> Iterator[Counter[str]]:
    """Publishers and clients; each client gets each message once and in order, or a slow one is told of its loss.

    Gives the numbers of messages that were sent, by kind.
    """
    path = str(supervisor.bus)
    clients = [Witness(f"{n}", path, KINDS, batch=n % 3 == 1, slow=n % 4 == 3) for n in range(8)]
    readers = Readers([*clients, *more])
    load = Load(supervisor.port, {"l": path}, b"relay01", chance)

    def accounted() -> bool:
        return all(one.missing(load.sent) == one.reported for one in clients)

    try:
        load.begin(1 << 30)
        yield load.sent
    finally:
        load.close()
        readers.hurry = True
        with suppress(AssertionError):
            wait(accounted, "all messages")
            time.sleep(0.5)  # what came twice would come now
        readers.close()
    assert load.fault == ""
    for one in (*clients, *more):
        assert (one.faults, one.ended) == ([], False), one.name
    assert accounted()
    assert [one.name for one in clients if one.reported and not one.slow] == []
    assert kernel_drops(dict(supervisor.passed)["udp"]) == 0


class Carrier(Witness):
    """A client that carries what there is over links, and keeps it."""

    def __init__(self, path: str) -> None:
        self.carried: list[tuple[bytes, bytes, int]] = []
        super().__init__("carrier", path, "", batch=True)
        self.sock.send(frames.subscribe(frames.LINK))

    def count(self, frame: bytes) -> None:
        """Keep way, kind and number of what is for links; the rest is as for others."""
        if not frame.startswith(b"MSG " + frames.LINK):
            super().count(frame)
        elif MARK in frame:
            kind, number, *_ = frame.partition(b"|" + MARK)[2].split(b" ")
            self.carried.append((frame.partition(b"\0")[2].partition(b"|")[0], kind, int(number)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [[signal.SIGKILL], [signal.SIGTERM], [signal.SIGABRT, signal.SIGKILL, signal.SIGTERM]], ids=str
)
def test_clients_notice_nothing_whatever_the_daemon_dies_of(supervisor: Supervisor, how: list[int]) -> None:
    chance = random.Random(str(how))
    with Wire(supervisor.port) as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        with under_load(supervisor, chance) as sent:
            for _ in range(ROUNDS):
                time.sleep(chance.random() * 0.15)
                supervisor.again(chance.choice(how))
        heard = list(wire.rest())
    # What was published here went out once: a second copy could come to others so late that it is news to them.
    out = [int(one.split(b":")[2]) for one in heard if b"]relay01/" in one and b"|" + MARK in one]
    assert out == list(range(out[0], out[0] + sent["l"] + sent["g"] + sent["d"]))
    assert supervisor.output().count("taken over: ") == ROUNDS
    assert "left out of what" not in supervisor.output()


@pytest.mark.slow
def test_links_notice_nothing_either(supervisor: Supervisor) -> None:
    # What waits for longer than the horizon stays on this host; on a busy machine a start may take as long.
    supervisor.configure({"dedup": {"horizon": "5m"}})
    supervisor.again(signal.SIGTERM)
    chance = random.Random(2)
    path = str(supervisor.bus)
    # On a channel of their own: what slow clients lose of the load is counted exactly.
    carrier, other = Carrier(path), Witness("other", path, "k")
    other.sock.send(frames.subscribe(b"brought/"))
    brought = 0
    with Wire(supervisor.port) as wire, seqpacket(path) as bringer:
        wire.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        with under_load(supervisor, chance, carrier, other) as sent:
            for _ in range(ROUNDS):
                supervisor.again(signal.SIGKILL)
                until = time.monotonic() + chance.random() * 0.15
                while time.monotonic() < until:
                    brought += 1
                    raw = datagram("relay10/y/1", brought, "brought/k", b"soak k %d " % brought, KEY)
                    # Two ways bring the same, as in every mesh.
                    for way in (7, 8):
                        bringer.send(frames.arrived("nng", way, time.time_ns(), "192.0.2.1:1", raw))
                    time.sleep(0.003)
        heard = list(wire.rest())
    everything = list(range(1, brought + 1))
    assert other.got["k"] == brought
    assert carrier.reported == other.reported == 0
    for kind, last in (("k", brought), *((kind, sent[kind]) for kind in "rlgd")):
        assert [number for _, one, number in carrier.carried if one == kind.encode()] == list(range(1, last + 1)), kind
    assert {way for way, one, _ in carrier.carried if one == b"k"} <= {b"7", b"8"}
    assert {way for way, one, _ in carrier.carried if one != b"k"} == {b"0"}
    assert [int(one.split(b"soak k ")[1]) for one in heard if b"]relay10/y/1:" in one] == everything


@pytest.mark.slow
def test_a_daemon_that_dies_again_and_again_while_it_takes_over_loses_nothing(supervisor: Supervisor) -> None:
    chance = random.Random(1)
    with under_load(supervisor, chance):
        for _ in range(3):
            supervisor.end(signal.SIGKILL)
            for _ in range(5):
                supervisor.process = supervisor.spawn()
                time.sleep(0.1 + chance.random() * 0.25)
                supervisor.end(signal.SIGKILL)
            supervisor.start()
            time.sleep(0.1)


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
