"""Descriptors of this process, and its limits, lowered for a while."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


def descriptors() -> set[str]:
    """Those that this process has open."""
    return set(os.listdir("/proc/self/fd"))


@contextmanager
def lowered(which: int, value: int) -> Iterator[None]:
    before = resource.getrlimit(which)
    resource.setrlimit(which, (value, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process can open so many more."""
    probes = [os.dup(0) for _ in range(count + 1)]
    for probe in probes:
        os.close(probe)
    with lowered(resource.RLIMIT_NOFILE, probes[-1]):
        yield


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes."""
    with lowered(resource.RLIMIT_FSIZE, size):
        yield
