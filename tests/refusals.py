"""Checks of errors that carry a stable reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bccnd.errors import BccndError, BusError


@contextmanager
def refused(reason: str, *parts: object, kind: type[BccndError] = BusError) -> Iterator[None]:
    """Expect an error with this reason; each of the parts is in its detail."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.reason == reason
    for part in parts:
        assert str(part) in caught.value.detail
