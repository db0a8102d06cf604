"""Durations and sizes: a number and a unit, and nothing else."""

from __future__ import annotations

import pytest

from bccnd.core.formats.units import parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("200ms", 0.2), ("5s", 5.0), ("1.5m", 90.0), ("24h", 86_400.0), ("7d", 604_800.0), ("0s", 0.0)],
)
def test_duration_in_each_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "size"), [("0B", 0), ("64KiB", 65_536), ("4MiB", 4_194_304), ("1GiB", 1 << 30)])
def test_size_in_each_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 s", "5S", "5s\n", "1e3s", ".5s", "5kb", "nan"])
def test_what_is_neither_is_none(text: str) -> None:
    assert parse_duration(text) is None
    assert parse_size(text) is None
