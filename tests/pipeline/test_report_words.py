"""Numbers, times and lists as people say them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.pipeline.report import words

#: 21 November 2026, 10:00:00 UTC
TEN = 1_795_255_200_000_000


def spaced(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *zip(
            map(words.share, (0.0, 0.000001, 0.0025, 0.0123, 0.3, 0.9996, 1.0)),
            ("0 %", "under 0.01 %", "0.25 %", "1.2 %", "30 %", "over 99 %", "100 %"),
            strict=True,
        ),
        (words.about(999_999), "999,999"),
        (words.about(12_345_678), "12.3 million"),
        (words.about(2_000_000_000), "2 billion"),
        (words.some(1, "host"), "1 host"),
        (words.some(2, "host"), "2 hosts"),
        (words.some(0, "host"), "0 hosts"),
        (words.some(3, "copy", "copies"), "3 copies"),
        *zip(
            map(words.octets, (900, 1234, 999_999, 5_000_000_000)),
            ("900 B", "1.23 kB", "1,000 kB", "5 GB"),
            strict=True,
        ),
        *zip(
            map(words.duration, (40_000, 12_000_000, 300_000_000, 4_800_000_000, 8_400_000_000, 259_200_000_000)),
            ("40 ms", "12 s", "5 min", "80 min", "2 h 20 min", "3 days"),
            strict=True,
        ),
        *zip(map(words.signed, (2_500_000, -12_000, 0)), ("+2.5 s", "-12 ms", "0 ms"), strict=True),
        # The day only where there are several.
        (words.when(TEN, words.HOUR), "10:00"),
        (words.when(TEN + 5_000_000, words.HOUR), "10:00:05"),
        (words.when(TEN, 3 * words.DAY), "21 Nov 10:00"),
        (words.span(TEN, TEN + words.HOUR), "21 Nov 2026, 10:00 to 11:00 UTC"),
        (words.span(TEN, TEN + words.DAY), "21 Nov 2026, 10:00 to 22 Nov 2026, 10:00 UTC"),
        (words.listing([]), ""),
        (words.listing(["a"]), "a"),
        (words.listing(["a", "b", "c"]), "a, b and c"),
        (words.listing(["a", "b", "c", "d", "e"]), "a, b, c and 2 more"),
        (words.plain("a\x1b[31m\u202eb"), "a\\x1b[31m\\x202eb"),
    ],
)
def test_numbers_times_and_lists(text: str, expected: str) -> None:
    assert spaced(text) == expected


@given(st.floats(min_value=1e-12, max_value=1, exclude_max=True))
def test_only_nothing_is_zero_and_only_all_is_all(ratio: float) -> None:
    assert spaced(words.share(ratio)) not in ("0 %", "0.00 %", "0.0 %", "100 %")


@given(st.text(max_size=80), st.integers(min_value=3, max_value=40))
def test_a_shortened_name_fits_and_keeps_its_ends(name: str, limit: int) -> None:
    short = words.shortened(name, limit)
    whole = words.plain(name)
    assert len(short) <= limit
    assert short == whole or (short[0] == whole[0] and short[-1] == whole[-1])
    assert short.isprintable() or "\N{NO-BREAK SPACE}" in short
