"""Numbers, times and lists as readers see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.pipeline.report import formatting as fmt
from tests.pipeline.reporting import spaced

#: 21 November 2026, 10:00:00 UTC
TEN = 1_795_255_200_000_000


SHOWN: list[tuple[Callable[..., str], dict[Any, str]]] = [
    (fmt.share, {0.0: "0 %", 0.000001: "under 0.01 %", 0.0025: "0.25 %", 0.0123: "1.2 %", 0.3: "30 %"}),
    (fmt.share, {0.9996: "over 99 %", 1.0: "100 %"}),
    (fmt.about, {999_999: "999,999", 12_345_678: "12.3 million", 2_000_000_000: "2 billion"}),
    (fmt.size, {900: "900 B", 1234: "1.23 kB", 999_999: "1,000 kB", 5_000_000_000: "5 GB"}),
    (fmt.duration, {40_000: "40 ms", 12_000_000: "12 s", 300_000_000: "5 min", 4_800_000_000: "80 min"}),
    (fmt.duration, {8_400_000_000: "2 h 20 min", 259_200_000_000: "3 days"}),
    (fmt.signed, {2_500_000: "+2.5 s", -12_000: "-12 ms", 0: "0 ms"}),
    (fmt.listing, {(): "", ("a",): "a", tuple("abc"): "a, b and c", tuple("abcde"): "a, b, c and 2 more"}),
    (fmt.plain, {"a\x1b[31m\u202eb": "a\\x1b[31m\\x202eb"}),
    (lambda count: fmt.quantity(count, "host"), {0: "0 hosts", 1: "1 host", 2: "2 hosts"}),
    # The day only where there are several.
    (lambda at: fmt.when(at, fmt.HOUR), {TEN: "10:00", TEN + 5_000_000: "10:00:05"}),
    (lambda at: fmt.when(at, 3 * fmt.DAY), {TEN: "21 Nov 10:00"}),
    (lambda end: fmt.span(TEN, end), {TEN + fmt.HOUR: "21 Nov 2026, 10:00 to 11:00 UTC"}),
    (lambda end: fmt.span(TEN, end), {TEN + fmt.DAY: "21 Nov 2026, 10:00 to 22 Nov 2026, 10:00 UTC"}),
]


@pytest.mark.parametrize(("show", "texts"), SHOWN)
def test_numbers_times_and_lists(show: Callable[..., str], texts: dict[Any, str]) -> None:
    assert {value: spaced(show(value)) for value in texts} == texts


@given(st.floats(min_value=1e-12, max_value=1, exclude_max=True))
def test_only_nothing_is_zero_and_only_all_is_all(ratio: float) -> None:
    assert spaced(fmt.share(ratio)) not in ("0 %", "0.00 %", "0.0 %", "100 %")


@given(st.text(max_size=80), st.integers(min_value=3, max_value=40))
def test_a_shortened_name_fits_and_keeps_its_ends(name: str, limit: int) -> None:
    short = fmt.shortened(name, limit)
    whole = fmt.plain(name)
    assert len(short) <= limit
    assert short == whole or (short[0] == whole[0] and short[-1] == whole[-1])
    assert short.isprintable() or "\N{NO-BREAK SPACE}" in short
