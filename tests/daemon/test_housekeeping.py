"""Work that may fail and is tried again, and memory that only the start has needed is given back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from mmap import PAGESIZE
from pathlib import Path

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


# Part of a file as libraries are mapped, of which the second page was changed before it became read-only, as the linker
# changes addresses.
CHANGED = """
import ctypes, mmap, sys
from bccnd.daemon import memory_pages

file = open(sys.argv[1], "r+b")
area = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
if sys.argv[2]:
    area[mmap.PAGESIZE] = ord("y")
place = ctypes.addressof(ctypes.c_char.from_buffer(area))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(place), ctypes.c_size_t(len(area)), 1) == 0
area[:]
def resident():
    mapping = open("/proc/self/smaps").read().partition(f"{place:x}-")[2]
    return int(mapping.partition("Rss:")[2].split()[0]) * 1024

before = resident()
for _ in memory_pages.tidy():
    pass
print(before, resident(), area[mmap.PAGESIZE :: mmap.PAGESIZE].decode())
"""


@pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="the kernel does not show pages")
@pytest.mark.parametrize("changed", [False, True])
def test_pages_of_a_file_are_given_back_unless_they_were_changed(tmp_path: Path, changed: bool) -> None:
    (tmp_path / "file").write_bytes(b"x" * 4 * PAGESIZE)
    command = [sys.executable, "-c", CHANGED, str(tmp_path / "file"), "changed" if changed else ""]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after, content = done.stdout.split()
    assert (int(before), int(after)) == (4 * PAGESIZE, 4 * PAGESIZE if changed else 0)
    assert content == ("yxx" if changed else "xxx")
