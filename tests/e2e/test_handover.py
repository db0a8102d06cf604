"""A daemon that is stopped and killed under load: after a stop clients notice nothing, after a crash they are told."""

from __future__ import annotations

import asyncio
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

import bccnd
from bccnd.native.system.sockio import BATCH
from tests.e2e.harness import KEY, PATIENCE, Wire, datagram, wait
from tests.e2e.subscribers import THOROUGH, Examples
from tests.e2e.subscribers import examples as examples
from tests.e2e.supervisor import Supervisor
from tests.support import BROADCAST, free_port, kernel_drops, need_root
from tools.soak.streams import MARK, Load, Readers, Witness

SO_RCVBUFFORCE: Final = 33
SO_TIMESTAMPNS: Final = 35
#: kinds of messages: from the segment, and from a client to its channel, to all, to this host, and too long for the
#: segment
KINDS: Final = "rlgdL"
#: messages that the daemon keeps for each client: a slow one loses some soon, and no other is so far behind, however
#: busy the machine is
QUEUE: Final = 400
#: packets of a client that are one input at most
TURN: Final = 64


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path / "a", patience=120.0) as one:  # the machine may have much else to do
        one.configure(
            {
                "integrity": {**one.with_key(KEY), "required": False},
                "bus": {"queue": {"messages": QUEUE}},
                "repeat": [{"channels": "soak/l/", "copies": 3, "spacing": "20ms"}],
            }
        )
        one.start()
        yield one


@contextmanager
def under_load(supervisor: Supervisor, seed: int) -> Iterator[tuple[list[Witness], Counter[str], list[bytes]]]:
    """Publishers and clients. Gives the clients, the numbers of messages that were sent by kind, and at the end the
    datagrams of this host."""
    path = str(supervisor.bus)
    clients = [Witness(f"{n}", path, KINDS, batch=n % 3 == 1, slow=n % 4 == 3) for n in range(8)]
    readers = Readers(clients)
    load = Load(supervisor.port, {"l": path}, b"relay01", random.Random(seed))
    heard: list[bytes] = []
    with Wire(supervisor.port) as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)

        def quiet() -> bool:
            """Whether nothing has come for a moment."""
            before = [(one.got.total(), one.doubled, one.reported) for one in clients]
            time.sleep(0.2)
            return before == [(one.got.total(), one.doubled, one.reported) for one in clients]

        try:
            load.begin(1 << 30)
            yield clients, load.sent, heard
        finally:
            load.close()
            readers.hurry = True
            with suppress(AssertionError):
                wait(quiet, "all messages")
            readers.close()
            heard += [one for one in wire.rest() if b"]relay01/" in one and b"|" + MARK in one]
    assert load.fault == ""
    assert [(one.name, one.faults) for one in clients if one.faults or one.ended] == []
    assert kernel_drops(dict(supervisor.passed)["udp"]) == 0


def numbers_of(heard: Sequence[bytes]) -> list[int]:
    """Return the numbers of datagrams in the order in which they first came; no number has two datagrams."""
    by_number: dict[int, bytes] = {}
    for one in heard:
        assert by_number.setdefault(int(one.split(b":")[2]), one) == one
    return list(by_number)


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_clean_stops_lose_nothing(supervisor: Supervisor, rounds: int) -> None:
    """A start that is refused in between loses nothing either."""
    chance = random.Random(rounds)
    with under_load(supervisor, 1) as (clients, sent, heard):
        for number in range(rounds):
            time.sleep(0.1 + chance.random() * 0.15)
            supervisor.end(signal.SIGTERM)
            if number == 1:
                start_in_vain(supervisor, {"nonsense": 1})
                start_in_vain(supervisor, {"metrics": {"listen": "192.0.2.1:1"}})
            supervisor.start()
    for one in clients:
        assert (one.crashes, one.doubled, one.missing(sent)) == (0, 0, one.reported), one.name
        assert one.slow or not one.reported, one.name
    assert any(one.reported for one in clients), "the slow ones prove something only if they lose something"
    numbers = numbers_of(heard)
    assert numbers == list(range(numbers[0], numbers[0] + sent["l"] + sent["g"] + sent["d"]))
    assert supervisor.output().count("taken over: ") == rounds
    assert supervisor.metric("crashes_total") == supervisor.metric("state_dropped_total") == 0


def start_in_vain(supervisor: Supervisor, settings: dict[str, object]) -> None:
    """Start a daemon whose settings are wrong."""
    right = dict(supervisor.settings)
    supervisor.configure(settings)
    process = supervisor.spawn()
    assert process.wait(PATIENCE) == 2, supervisor.output()
    supervisor.settings = right
    supervisor.configure({})


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_crash_costs_what_was_in_work_and_each_client_is_told(supervisor: Supervisor, rounds: int) -> None:
    chance = random.Random(rounds)
    with under_load(supervisor, 2) as (clients, sent, heard):
        for _ in range(rounds):
            time.sleep(0.1 + chance.random() * 0.15)
            supervisor.again(signal.SIGKILL)
            assert supervisor.metric("crashes_total") == 1
    for one in clients:
        assert one.doubled <= rounds * BATCH, one.name
        if one.slow:
            assert 1 <= one.crashes <= rounds, one.name
        else:
            assert one.crashes == rounds, one.name
            assert one.missing(sent) <= one.reported + rounds * (QUEUE + max(BATCH, TURN)), one.name
    numbers = numbers_of(heard)
    assert numbers == sorted(numbers)
    assert supervisor.starts == rounds + 1
    supervisor.again(signal.SIGTERM)
    assert supervisor.metric("crashes_total") == supervisor.metric("state_dropped_total") == 0


def test_python_programs_and_the_command_line_show_a_crash_in_place(supervisor: Supervisor) -> None:
    async def heard_on_asyncio() -> list[object]:
        async with bccnd.aio.connect(str(supervisor.bus)) as bus:
            await bus.subscribe("a/")
            await bus.sync(PATIENCE)
            await asyncio.to_thread(supervisor.again, signal.SIGKILL)
            with Wire(supervisor.port) as wire:
                wire.send(datagram("relay02/x/1", 1, "a/b", "x"))
            return [await bus.receive(PATIENCE), await bus.receive(PATIENCE)]

    with supervisor.connect("a/") as bus, supervisor.tool_running("sub", "a/", "-n", "1") as printing:
        wait(lambda: supervisor.metric("subscriptions") == 2, "the command to subscribe")
        for found in (asyncio.run(heard_on_asyncio()), [bus.receive(PATIENCE), bus.receive(PATIENCE)]):
            gap, message = found
            assert gap == bccnd.Gap(0)
            assert isinstance(message, bccnd.Message)
        _, said = printing.communicate(timeout=PATIENCE)
        assert b"an unknown number of messages was lost here" in said


@pytest.mark.parametrize("language", [one for one in THOROUGH if one != "python"])
def test_programs_in_other_languages_show_a_crash_in_place(
    supervisor: Supervisor, examples: Examples, language: str
) -> None:
    with examples.subscribe(language, supervisor, "a/") as program:
        supervisor.again(signal.SIGKILL)
        wait(lambda: b"messages may have been lost here" in program.complained(), "the gap")


@pytest.mark.slow
def test_a_crash_lets_only_datagrams_of_the_last_seconds_be_replayed(tmp_path: Path) -> None:
    settings = {"dedup": {"freshness": "monotonic", "horizon": "1s"}}
    with Supervisor(tmp_path / "a", settings) as supervisor, Wire(supervisor.port) as wire:
        supervisor.start()
        first = datagram("relay02/x/1", 5, "a/b", b"first")
        wire.send(first)
        wait(lambda: any(name.startswith("trackers") for name in supervisor.store), "the trackers", 30.0)
        supervisor.again(signal.SIGKILL)
        assert supervisor.metric("sources") == 1
        wire.send(first, datagram("relay02/x/1", 6, "a/b", b"second"))
        wait(lambda: supervisor.verdicts() == {"replayed": 1, "accepted": 1}, "the verdicts")


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
            supervisor.again(signal.SIGTERM)
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
        supervisor.again(signal.SIGTERM)
        supervisor.end(signal.SIGTERM)
        second = flood()
        supervisor.start()
        wait(lambda: len(logged()) == 2, "the second line")
        assert logged() == [first, second - first]
        assert supervisor.metric("socket_drops_total") == second
