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
    ("ratio", "text"),
    [
        (0.0, "0 %"),
        (0.000001, "under 0.01 %"),
        (0.0025, "0.25 %"),
        (0.0123, "1.2 %"),
        (0.3, "30 %"),
        (0.9996, "over 99 %"),
        (1.0, "100 %"),
    ],
)
def test_a_share_is_never_rounded_to_nothing_or_to_all(ratio: float, text: str) -> None:
    assert spaced(words.share(ratio)) == text


@given(st.floats(min_value=1e-12, max_value=1, exclude_max=True))
def test_only_nothing_is_zero_and_only_all_is_all(ratio: float) -> None:
    text = spaced(words.share(ratio))
    assert text not in ("0 %", "0.00 %", "0.0 %", "100 %")


@pytest.mark.parametrize(
    ("number", "text"), [(999_999, "999,999"), (12_345_678, "12.3 million"), (2_000_000_000, "2 billion")]
)
def test_counts(number: int, text: str) -> None:
    assert spaced(words.about(number)) == text


def test_one_and_many() -> None:
    assert spaced(words.some(1, "host")) == "1 host"
    assert spaced(words.some(2, "host")) == "2 hosts"
    assert spaced(words.some(0, "host")) == "0 hosts"
    assert spaced(words.some(3, "copy", "copies")) == "3 copies"


@pytest.mark.parametrize(
    ("number", "text"), [(900, "900 B"), (1234, "1.23 kB"), (999_999, "1,000 kB"), (5_000_000_000, "5 GB")]
)
def test_volumes(number: int, text: str) -> None:
    assert spaced(words.octets(number)) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (40_000, "40 ms"),
        (12_000_000, "12 s"),
        (300_000_000, "5 min"),
        (4_800_000_000, "80 min"),
        (8_400_000_000, "2 h 20 min"),
        (259_200_000_000, "3 days"),
    ],
)
def test_durations(span: int, text: str) -> None:
    assert spaced(words.duration(span)) == text


def test_differences_have_a_sign() -> None:
    assert spaced(words.signed(2_500_000)) == "+2.5 s"
    assert spaced(words.signed(-12_000)) == "-12 ms"
    assert spaced(words.signed(0)) == "0 ms"


def test_moments_say_the_day_only_where_there_are_several() -> None:
    assert words.when(TEN, words.HOUR) == "10:00"
    assert words.when(TEN + 5_000_000, words.HOUR) == "10:00:05"
    assert words.when(TEN, 3 * words.DAY) == "21 Nov 10:00"
    assert words.span(TEN, TEN + words.HOUR) == "21 Nov 2026, 10:00 to 11:00 UTC"
    assert words.span(TEN, TEN + words.DAY) == "21 Nov 2026, 10:00 to 22 Nov 2026, 10:00 UTC"


def test_lists() -> None:
    assert words.listing([]) == ""
    assert words.listing(["a"]) == "a"
    assert words.listing(["a", "b", "c"]) == "a, b and c"
    assert words.listing(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_what_cannot_be_printed_is_spelled_out() -> None:
    assert words.plain("a\x1b[31m\u202eb") == "a\\x1b[31m\\x202eb"


@given(st.text(max_size=80), st.integers(min_value=3, max_value=40))
def test_a_shortened_name_fits_and_keeps_its_ends(name: str, limit: int) -> None:
    short = words.shortened(name, limit)
    whole = words.plain(name)
    assert len(short) <= limit
    assert short == whole or (short[0] == whole[0] and short[-1] == whole[-1])
    assert short.isprintable() or "\N{NO-BREAK SPACE}" in short
