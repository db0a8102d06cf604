"""Files in memory: appends, replacement by an image, freed memory, and a killed writer."""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.handover import memfd
from bccnd.handover.memfd import WORTH, File
from tests.limits import no_file_larger_than
from tests.support import examples

HEADER: Final = 16


@pytest.fixture
def fd() -> Iterator[int]:
    """An empty file; a `File` of it closes its own copy."""
    one = memfd.create("test")
    yield one
    os.close(one)


class Reopened(File):
    """One that ends with the last use of it."""

    def __del__(self) -> None:
        self.close()


def reopen(fd: int) -> File:
    """Open the file by another descriptor, as the next daemon does."""
    return Reopened(os.dup(fd))


def test_a_new_file_is_empty_and_not_inherited(fd: int) -> None:
    assert not os.get_inheritable(fd)
    one = reopen(fd)
    assert (one.understood, len(one), one.read(), one.end) == (True, 0, b"", HEADER)
    assert (reopen(fd).understood, len(reopen(fd))) == (True, 0)


DATA: Final = st.builds(lambda piece, times: piece * times, st.binary(max_size=9), st.sampled_from([0, 1, 7, 1000]))
STEPS: Final = st.lists(st.tuples(st.sampled_from(["append", "append", "replace", "torn", "cut"]), DATA), max_size=12)


@given(STEPS)
@settings(max_examples=examples(200))
def test_contents_are_what_was_written_last(steps: list[tuple[str, bytes]]) -> None:
    fd = memfd.create("test")
    one, contents = reopen(fd), b""
    for what, data in steps:
        before = one.end
        if what == "append":
            one.append(data)
            contents += data
        elif what == "replace":
            one.replace(data)
            contents = data
            assert one.end == before + len(data)  # it never goes back
        elif what == "torn":  # a writer was killed before a record was whole, or before an image counted
            os.ftruncate(fd, before)
            os.pwrite(fd, data, before)
            one = reopen(fd)
            contents += data
        else:
            contents = contents[: len(contents) - min(len(data), len(contents))]
            one.cut(len(contents))
        other = reopen(fd)
        assert one.read() == other.read() == contents
        assert (len(one), one.end, other.understood) == (len(contents), other.end, True)
    os.close(fd)


@pytest.mark.parametrize(
    "content",
    [b"x", b"bccntap1", b"bccntap1" + bytes(7), b"bccntap2" + struct.pack("=Q", 16) + b"records", b"\0" * 100],
)
def test_foreign_content_is_replaced(fd: int, content: bytes) -> None:
    os.write(fd, content)
    one = reopen(fd)
    assert (one.understood, one.read(), one.end) == (False, b"", HEADER)
    one.append(b"ours")
    other = reopen(fd)
    assert (other.understood, other.read()) == (True, b"ours")


def test_start_beyond_the_end_is_empty(fd: int) -> None:
    os.write(fd, struct.pack("=8sQ", b"bccntap1", 5000) + b"x" * 100)
    one = reopen(fd)
    assert (len(one), one.read()) == (0, b"")
    one.append(b"y")
    assert reopen(fd).read() == b"y"


def test_memory_of_replaced_contents_is_freed(fd: int) -> None:
    one = reopen(fd)
    for number in range(300):
        one.append(b"x" * (1000, 4096, 5000, 300_000)[number % 4])
        one.replace(b"image %d" % number)
        assert os.fstat(fd).st_blocks * 512 <= 3 * 4096
    assert reopen(fd).read() == b"image 299"


def test_growth_is_reported_and_again_at_twice_the_size(fd: int) -> None:
    one = reopen(fd)
    sizes: list[int] = []
    one.grown = lambda: sizes.append(len(one))
    for _ in range(WORTH * 4 // 1000 + 4):
        one.append(b"x" * 1000)
    assert [round(size / WORTH) for size in sizes] == [1, 2, 4]
    assert all(size > WORTH for size in sizes)
    sizes.clear()
    # Not before it is three times as large as its image.
    one.replace(b"i" * WORTH)
    for _ in range(WORTH * 2 // 1000):
        one.append(b"x" * 1000)
    assert sizes == []
    one.append(b"x" * 1000)
    assert len(sizes) == 1
    # It may be replaced in the callback.
    one.grown = lambda: one.replace(b"image")
    one.append(b"x" * 3 * WORTH)
    one.append(b"more")
    assert one.read() == reopen(fd).read() == b"imagemore"


@pytest.mark.parametrize("spare", [0, 1, 50, 99])
def test_without_room_an_error_is_raised_and_the_content_stays(fd: int, spare: int) -> None:
    one = reopen(fd)
    one.append(b"x" * 4000)
    with no_file_larger_than(one.end + spare):
        with pytest.raises(OSError) as failed:
            one.append(b"y" * 100)
        assert "large" in str(failed.value)
        with pytest.raises(OSError):
            one.append(b"y" * 100)
        assert one.read() == b"x" * 4000
        with pytest.raises(OSError):
            one.replace(b"z" * 100)
        assert one.read() == b"x" * 4000
    assert reopen(fd).read()[:4000] == b"x" * 4000
    assert reopen(fd).read()[4000:] in (b"", b"y" * spare, b"z" * spare)
    one.append(b"more")
    assert one.read() == reopen(fd).read() == b"x" * 4000 + b"more"


def test_a_file_is_closed_once() -> None:
    one = File(memfd.create("test"))
    number = one.fd
    one.close()
    with pytest.raises(OSError):
        os.fstat(number)
    # The number is in use again.
    other = os.open(os.devnull, os.O_RDONLY)
    try:
        assert other == number
        one.close()
        os.fstat(other)
        with pytest.raises(OSError):
            one.append(b"x")
    finally:
        os.close(other)


def test_mapping_is_shared_and_extends_the_file(fd: int) -> None:
    one, other = memfd.map_whole(fd, 100_000), memfd.map_whole(fd, 100_000)
    with one, other:
        assert os.fstat(fd).st_size == 100_000
        one[99_999] = 7
        assert other[99_999] == 7
        with memfd.map_whole(fd, mmap.PAGESIZE):
            assert os.fstat(fd).st_size == 100_000


def test_a_killed_writer_leaves_whole_records_or_a_whole_image(fd: int) -> None:
    chance = random.Random(5)
    # Records of many sizes, which cross pages, and some images.
    record = struct.Struct("=II")
    images = tails = 0
    for _ in range(examples(60)):
        os.ftruncate(fd, 0)
        pid = os.fork()
        if not pid:
            with suppress(BaseException):
                one = reopen(fd)
                for number in range(1_000_000_000):
                    if number % 50 == 49:
                        one.replace(record.pack(number, 0xFFFFFFFF))
                    else:
                        size = number * 997 % 9000
                        one.append(record.pack(number, size) + bytes((number % 251,)) * size)
            os._exit(1)
        killed_at = chance.randrange(100_000, 1_500_000)
        while os.fstat(fd).st_size < killed_at:
            pass
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        one = reopen(fd)
        assert one.understood
        data, at = one.read(), 0
        numbers: list[int] = []
        while at + record.size <= len(data):
            number, size = record.unpack_from(data, at)
            if size == 0xFFFFFFFF:
                size = 0
                if numbers:  # an image that does not count yet
                    tails += 1
                    assert number == numbers[-1] + 1
                    assert at + record.size == len(data)
                    break
                images += 1
            else:
                assert size == number * 997 % 9000
            body = data[at + record.size : at + record.size + size]
            assert body == bytes((number % 251,)) * len(body)
            if len(body) < size:
                tails += 1
                break
            numbers.append(number)
            at += record.size + size
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[0] == 0 or numbers[0] % 50 == 49
    assert images > 5
