"""Fixtures of more than one part's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import Hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A bus that does nothing until it is turned."""
    with Hub(tmp_path) as one:
        yield one
