"""Durations and sizes: a number and a unit, and nothing else."""

from __future__ import annotations

import pytest

from bccnd.core.formats.durations_and_sizes import parse_duration, parse_heap, parse_number, parse_size, parse_whole


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("200ms", 0.2), ("5s", 5.0), ("1.5m", 90.0), ("24h", 86_400.0), ("7d", 604_800.0), ("0s", 0.0)],
)
def test_duration_in_each_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "size"), [("0B", 0), ("64KiB", 65_536), ("4MiB", 4_194_304), ("1GiB", 1 << 30)])
def test_size_in_each_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("text", "size"), [("512m", 512), ("2g", 2048), ("1G", 1024), ("3M", 3)])
def test_heap_of_java(text: str, size: int) -> None:
    assert parse_heap(text) == size


@pytest.mark.parametrize(
    "text",
    [
        *(
            "inf",
            "nan",
            "-1",
            "1e308s",
            "infs",
            "1_0",
            "0x1",
            " 1",
            "1 ",
            "1\n",
            "1e999",
            "\u0663",
            "\u0663s",
            "\u0663B",
        ),
        *(f"{'9' * size}{unit}" for size in (23, 400, 5000) for unit in ("d", "ms", "GiB", "g")),
    ],
)
def test_what_is_out_of_range_or_no_ascii_is_none(text: str) -> None:
    assert [parse(text) for parse in (parse_number, parse_whole, parse_duration, parse_size, parse_heap)] == [None] * 5


@pytest.mark.parametrize(("text", "number"), [("0", 0.0), ("1.5", 1.5), ("1e3", 1000.0), ("25E-2", 0.25)])
def test_plain_numbers(text: str, number: float) -> None:
    assert parse_number(text) == number
    assert parse_whole(text) == (0 if text == "0" else None)


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 s", "5S", "5s\n", "1e3s", ".5s", "5kb", "nan"])
def test_what_is_neither_is_none(text: str) -> None:
    assert parse_duration(text) is None
    assert parse_size(text) is None
