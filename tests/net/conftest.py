"""Buses that more than one file of tests turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.net.access import everybody
from bccnd.net.clients import BusLimits
from tests.support import Hub, need_root


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Hub]:
    """A bus that keeps little for each client."""
    with Hub(tmp_path, limits=BusLimits(queue_messages=20, queue_bytes=100_000)) as one:
        yield one


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Hub]:
    """A bus that keeps little for each client, and to which other users can connect."""
    need_root("clients of other users")
    limits = BusLimits(queue_messages=20, queue_bytes=100_000)
    with Hub(tmp_path, limits=limits, others=[("path", everybody)]) as one:
        yield one
