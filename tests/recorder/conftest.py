"""Logs are converted in the process of the tests, but for those of the converting process itself."""

from __future__ import annotations

from typing import Any

import pytest

from bccnd.recorder.converter_process import ConverterProcess, answer, checked


class Inline(ConverterProcess):
    """Converts without a process, which takes long to load."""

    def start(self) -> None:
        pass

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return checked(answer(request))


@pytest.fixture
def real_process() -> None:
    """For tests of the converting process."""


@pytest.fixture(autouse=True)
def _inline(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "real_process" not in request.fixturenames:
        monkeypatch.setattr("bccnd.recorder.maintenance.ConverterProcess", Inline)
