"""What the daemon can do without: it may fail, and is tried again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bccnd.daemon import housekeeping, memory_pages
from bccnd.daemon.housekeeping import Housekeeping
from bccnd.net.loop import Loop
from tests.hubs import loop
from tests.support import turn, turn_until

__all__ = ["loop"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "TIDY_INTERVAL", 0.0)


def test_a_task_that_fails_is_logged_and_run_again(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []

    def task() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise OSError

    Housekeeping(loop).every(0.0, task)
    turn_until(loop, lambda: len(runs) == 5)
    assert {vars(record)["event"] for record in caplog.records} == {"internal_error"}


def test_memory_is_tidied_a_step_at_a_time(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def tidy() -> Iterator[None]:
        for number in range(3):
            steps.append(number)
            yield

    monkeypatch.setattr(memory_pages, "tidy", tidy)
    Housekeeping(loop).tidy_memory()
    assert steps == [0]
    turn_until(loop, lambda: len(steps) == 3)
    turn(loop, 5)
    assert steps == [0, 1, 2]
