"""Durations and sizes: a number and a unit, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bccnd.core.formats.durations_and_sizes import parse_duration, parse_heap, parse_number, parse_size, parse_whole

PARSERS = (parse_number, parse_whole, parse_duration, parse_size, parse_heap)
#: parsers, and what they read
READ: list[tuple[Callable[[str], float | None], dict[str, float]]] = [
    (parse_duration, {"200ms": 0.2, "5s": 5.0, "1.5m": 90.0, "24h": 86_400.0, "7d": 604_800.0, "0s": 0.0}),
    (parse_size, {"0B": 0, "64KiB": 65_536, "4MiB": 4_194_304, "1GiB": 1 << 30}),
    (parse_heap, {"512m": 512, "2g": 2048, "1G": 1024, "3M": 3}),
    (parse_number, {"0": 0.0, "1.5": 1.5, "1e3": 1000.0, "25E-2": 0.25}),
    (parse_whole, {"0": 0, "7": 7}),
]
#: what no parser reads, and what neither durations nor sizes are
NEVER = [
    *("inf", "nan", "-1", "1e308s", "infs", "1_0", "0x1", " 1", "1 ", "1\n", "1e999", "\u0663", "\u0663s", "\u0663B"),
    *(f"{'9' * size}{unit}" for size in (23, 400, 5000) for unit in ("d", "ms", "GiB", "g")),
]
NEITHER = ["", "5", "s", "-5s", "5 s", "5S", "5s\n", "1e3s", ".5s", "5kb"]


@pytest.mark.parametrize(("parse", "values"), READ)
def test_values_in_each_unit_are_read(parse: Callable[[str], float | None], values: dict[str, float]) -> None:
    assert {text: parse(text) for text in values} == pytest.approx(values)


def test_anything_else_is_none() -> None:
    assert [text for text in NEVER for parse in PARSERS if parse(text) is not None] == []
    assert [text for text in NEITHER for parse in (parse_duration, parse_size) if parse(text) is not None] == []
    assert [parse_whole(text) for text in ("1.5", "1e3")] == [None, None]
