"""A bus with other users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.bus.clients.access_rules import admit_all
from tests.support import Hub, need_root


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Hub]:
    """A bus to which other users can connect."""
    need_root("clients of other users")
    with Hub(tmp_path, others=[("path", admit_all)]) as one:
        yield one
