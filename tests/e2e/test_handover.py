"""What survives a crash and a restart; that nothing is lost under load is shown by the simulation and booted hosts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import PATIENCE, Wire, datagram, wait
from tests.e2e.subscribers import THOROUGH, Examples
from tests.e2e.subscribers import examples as examples
from tests.e2e.supervisor import Supervisor
from tests.kernel import kernel_drops
from tests.support import BROADCAST, free_port


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path / "a") as one:
        one.start()
        yield one


@pytest.mark.parametrize("language", [pytest.param(one, marks=[pytest.mark.slow] * (one != "c")) for one in THOROUGH])
def test_programs_show_a_crash_in_place(supervisor: Supervisor, examples: Examples, language: str) -> None:
    with (
        supervisor.tool_running("sub", "a/", "-n", "1") as command,
        examples.subscribe(language, supervisor, "a/") as program,
        Wire(supervisor.port) as wire,
    ):
        wait(lambda: supervisor.metric("subscriptions") == 2, "the command to subscribe")
        supervisor.again(signal.SIGKILL)
        wire.send(datagram("relay02/x/1", 1, "a/b", "x"))
        _, said = command.communicate(timeout=PATIENCE)
        assert b"an unknown number of messages" in said
        wait(lambda: b"messages may have been lost here" in program.complained(), "the gap")


@pytest.mark.slow
def test_after_a_crash_only_the_last_seconds_can_be_replayed(tmp_path: Path) -> None:
    settings = {"dedup": {"freshness": "monotonic", "horizon": "1s"}}
    with Supervisor(tmp_path / "a", settings) as supervisor, Wire(supervisor.port) as wire:
        supervisor.start()
        first = datagram("relay02/x/1", 5, "a/b", b"first")
        wire.send(first)
        wait(lambda: any(name.startswith("trackers") for name in supervisor.store), "the trackers")
        supervisor.again(signal.SIGKILL)
        wire.send(first, datagram("relay02/x/1", 6, "a/b", b"second"))
        wait(lambda: supervisor.verdicts() == {"replayed": 1, "accepted": 1}, "the verdicts")


@pytest.mark.slow
def test_drops_of_the_kernel_count_over_restarts(tmp_path: Path) -> None:
    segment = {"address": BROADCAST, "port": free_port(), "receive_buffer": "16KiB"}
    with Supervisor(tmp_path / "a", {"segments": [segment]}) as supervisor, Wire(supervisor.port) as wire:

        def flood() -> int:
            """Overflow the buffer; return how many datagrams the kernel has dropped so far."""
            wire.send(*[b"x" * 1000] * 100)
            return kernel_drops(supervisor.passed["udp"])

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
