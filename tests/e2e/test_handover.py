"""What survives a crash and a restart; that nothing is lost under load is shown by the simulation and booted hosts."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import bccnd
from tests.e2e.harness import PATIENCE, Wire, datagram, wait
from tests.e2e.subscribers import THOROUGH, Examples
from tests.e2e.subscribers import examples as examples
from tests.e2e.supervisor import Supervisor
from tests.support import BROADCAST, free_port, kernel_drops, need_root

SO_TIMESTAMPNS: Final = 35


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path / "a") as one:
        one.start()
        yield one


def test_programs_show_a_crash_in_place(supervisor: Supervisor, examples: Examples) -> None:
    """In Python, blocking and on asyncio, the command line, and C."""

    async def heard_on_asyncio() -> list[object]:
        async with bccnd.aio.connect(str(supervisor.bus)) as bus:
            await bus.subscribe("a/")
            await bus.sync(PATIENCE)
            await asyncio.to_thread(supervisor.again, signal.SIGKILL)
            with Wire(supervisor.port) as wire:
                wire.send(datagram("relay02/x/1", 1, "a/b", "x"))
            return [await bus.receive(PATIENCE), await bus.receive(PATIENCE)]

    with (
        supervisor.connect("a/") as bus,
        supervisor.tool_running("sub", "a/", "-n", "1") as printing,
        examples.subscribe("c", supervisor, "a/") as program,
    ):
        wait(lambda: supervisor.metric("subscriptions") == 3, "the command to subscribe")
        for found in (asyncio.run(heard_on_asyncio()), [bus.receive(PATIENCE), bus.receive(PATIENCE)]):
            gap, message = found
            assert gap == bccnd.Gap(0)
            assert isinstance(message, bccnd.Message)
        _, said = printing.communicate(timeout=PATIENCE)
        assert b"an unknown number of messages" in said
        wait(lambda: b"messages may have been lost here" in program.complained(), "the gap")


@pytest.mark.slow
@pytest.mark.parametrize("language", [one for one in THOROUGH if one not in ("c", "python")])
def test_other_languages_show_a_crash_in_place(supervisor: Supervisor, examples: Examples, language: str) -> None:
    with examples.subscribe(language, supervisor, "a/") as program:
        supervisor.again(signal.SIGKILL)
        wait(lambda: b"messages may have been lost here" in program.complained(), "the gap")


@pytest.mark.slow
def test_after_a_crash_only_the_last_seconds_can_be_replayed(tmp_path: Path) -> None:
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
    command = ["unshare", "--time", f"--monotonic=-{int(time.monotonic())}"]
    clock = [*command, sys.executable, "-c", "import time; print(time.monotonic())"]
    found = subprocess.run(clock, capture_output=True, check=False)
    if found.returncode or float(found.stdout) > 60:
        pytest.skip("this kernel has no time namespaces that begin with a new program")
    return command


@pytest.mark.root
@pytest.mark.slow
def test_a_wall_clock_set_at_boot_leaves_the_trackers_intact(tmp_path: Path) -> None:
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


def test_drops_of_the_kernel_count_over_restarts(tmp_path: Path) -> None:
    segment = {"address": BROADCAST, "port": free_port(), "receive_buffer": "16KiB"}
    with Supervisor(tmp_path / "a", {"segments": [segment]}) as supervisor, Wire(supervisor.port) as wire:
        udp = dict(supervisor.passed)["udp"]

        def flood() -> int:
            """Overflow the buffer; return how many datagrams the kernel has dropped so far."""
            wire.send(*[b"x" * 1000] * 100)
            return kernel_drops(udp)

        def logged(count: int) -> bool:
            return f"dropped {count} datagrams" in supervisor.output()

        supervisor.start()
        supervisor.signal(signal.SIGSTOP)
        first = flood()
        supervisor.signal(signal.SIGCONT)
        wait(lambda: logged(first), "the first line")
        supervisor.again(signal.SIGTERM)
        supervisor.kill(signal.SIGTERM)
        second = flood()
        supervisor.start()
        wait(lambda: logged(second - first), "the second line")
        assert supervisor.metric("socket_drops_total") == second
