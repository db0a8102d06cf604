"""Scripted daemons for tests of clients."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

import bccnd
from tests.client.sessions import Bare, Driven
from tests.limits import descriptors
from tests.support import wait


@pytest.fixture
def nothing_stays_open() -> Iterator[None]:
    """No descriptor that the test opens outlives it."""
    gc.collect()  # what an earlier test of this process has left
    before = descriptors()
    yield
    gc.collect()
    assert descriptors() == before


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Bare]:
    with Bare(str(tmp_path / "bus.sock")) as one:
        yield one


@pytest.fixture(params=[bccnd.connect, Driven], ids=["blocking", "asyncio"])
def bus(request: pytest.FixtureRequest, bare: Bare) -> Iterator[bccnd.Connection]:
    """Either client, connected to the scripted daemon."""
    with request.param(bare.address) as connection:
        wait(lambda: bare.received, "the connection to be accepted")
        yield connection
