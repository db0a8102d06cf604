"""The order of the daemon's memory after the start."""

from __future__ import annotations

import subprocess
import sys
from mmap import PAGESIZE
from pathlib import Path

import pytest

# In a process of its own, whose memory nothing else changes. The second half is joined by hand: where that fails too,
# the kernel has no large pages, or none left.
PROGRAM = """
import mmap, sys
from bccnd.daemon import memory_pages

def large():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("AnonHugePages"))

def filled():
    area = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.write(CONTENT)
    return area

SIZE, CONTENT = 16 << 20, bytes(range(256)) * (16 << 12)
memory_pages._POLICY = sys.argv[1]
first = filled()
before = large()
steps = list(memory_pages.tidy())
by_tidy = large() - before
second = filled()
before = large()
for mapping in memory_pages._mappings():
    if mapping.rights == "rw-p" and not mapping.inode:
        memory_pages._libc.madvise(mapping.start, mapping.end - mapping.start, 25)
print(first[:] == CONTENT, by_tidy, large() - before, max(steps))
"""


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
assert memory_pages._libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(len(area)), 1) == 0
area[:]
before = memory_pages._resident(place, len(area))
for _ in memory_pages.tidy():
    pass
print(before, memory_pages._resident(place, len(area)), area[mmap.PAGESIZE :: mmap.PAGESIZE].decode())
"""


@pytest.mark.parametrize("changed", [False, True])
def test_pages_of_a_file_are_given_back_unless_they_were_changed(tmp_path: Path, changed: bool) -> None:
    (tmp_path / "file").write_bytes(b"x" * 4 * PAGESIZE)
    command = [sys.executable, "-c", CHANGED, str(tmp_path / "file"), "changed" if changed else ""]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after, content = done.stdout.split()
    if before == "0":
        pytest.skip("this kernel does not show which pages are in memory")
    assert (int(before), int(after)) == (4 * PAGESIZE, 4 * PAGESIZE if changed else 0)
    assert content == ("yxx" if changed else "xxx")


@pytest.mark.parametrize("policy", ["[always] madvise never", "always [madvise] never", "always madvise [never]"])
def test_what_stays_keeps_its_content_and_lies_in_large_pages_if_it_may(tmp_path: Path, policy: str) -> None:
    (tmp_path / "policy").write_text(policy)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "policy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    same, by_tidy, by_hand, step = done.stdout.split()
    assert same == "True"
    if "[never]" in policy:
        assert by_tidy == "0"
    elif by_hand == "0":
        pytest.skip("this kernel joins no pages")
    else:
        assert int(by_tidy) >= 8 << 10
        assert int(step) <= 2 << 20  # no step takes long
