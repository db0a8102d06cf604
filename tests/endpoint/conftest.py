"""Segments for tests of endpoints."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.endpoint.segments import Segment


@pytest.fixture
def segment() -> Iterator[Segment]:
    with ExitStack() as ends:
        yield Segment(ends)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can, so that whatever can come between two steps does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
