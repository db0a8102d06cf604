"""What the daemon can do without: it may fail, and is tried again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.daemon import housekeeping, memory
from bccnd.daemon.housekeeping import Housekeeping
from bccnd.net.loop import Loop
from tests.hubs import loop
from tests.limits import descriptors_left
from tests.support import turn, turn_until

__all__ = ["loop"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "PAGE_MODULES_INTERVAL", 0.0)
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


def test_modules_are_loaded_one_by_one_and_again_if_descriptors_were_missing(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("page_part_one", "page_part_missing", "page_part_two")
    for name in (names[0], names[2]):
        (tmp_path / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    tidied: list[int] = []

    def tidy() -> Iterator[int]:
        tidied.append(1)
        yield 0

    monkeypatch.setattr(memory, "tidy", tidy)
    Housekeeping(loop).load_pages(names)
    with descriptors_left(0):
        turn(loop, 5)
        assert not set(names) & set(sys.modules)
    turn_until(loop, lambda: names[0] in sys.modules)
    assert names[2] not in sys.modules
    with descriptors_left(0):
        turn(loop, 5)
    assert (names[2] in sys.modules, tidied) == (False, [])
    turn_until(loop, lambda: tidied)
    assert names[2] in sys.modules
    turn(loop, 5)
    assert tidied == [1]
    for name in (names[0], names[2]):
        del sys.modules[name]
