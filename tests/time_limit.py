"""A plugin of pytest: a test process ends whose test goes on for twice its time limit, and shows where it waits.

At its limit a test fails by an exception (pytest-timeout); but what that ends may wait for ever in turn.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from typing import Protocol

import pytest


class Settings(Protocol):
    """What pytest-timeout says of a test."""

    timeout: float


class HardLimit:
    """Ends the process from a thread of C, whatever it is at."""

    def __init__(self) -> None:
        # Not the one that pytest puts in its place while a test runs.
        self._stderr = os.dup(2)
        self._limit = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_timeout_set_timer(self, settings: Settings) -> Generator[None, object, object]:
        self._limit = settings.timeout
        self._arm()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        # Again: both limits end when a test fails, for debuggers.
        if self._limit:
            self._arm()
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._limit = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_timeout_cancel_timer(self) -> Generator[None, object, object]:
        faulthandler.cancel_dump_traceback_later()
        return (yield)

    def _arm(self) -> None:
        faulthandler.dump_traceback_later(2 * self._limit, exit=True, file=self._stderr)
