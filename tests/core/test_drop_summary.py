"""The summary of drops: what has grown since the last one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.drop_summary import DropSummary, Row, in_fields, in_words

COUNTS = st.lists(st.dictionaries(st.sampled_from(["a/x", "a/y", "b/x", "c/c"]), st.integers(0, 99)), max_size=8)


def row(key: str, count: int) -> Row:
    family, _, name = key.partition("/")
    return family, name, count


def test_several_places_count_together_and_a_counter_that_restarts_counts_from_zero() -> None:
    tally = DropSummary()
    assert tally.grown([("a", "x", 5), ("a", "x", 6), ("a", "y", 0)]) == [("a", "x", 11)]
    assert tally.grown([("a", "x", 2), ("a", "y", 1)]) == [("a", "x", 2), ("a", "y", 1)]
    assert tally.grown([("a", "x", 0)]) == []


@given(COUNTS)
def test_told_parts_add_up_to_what_was_counted_while_counters_only_rise(steps: list[dict[str, int]]) -> None:
    tally, total = DropSummary(), dict.fromkeys(["a/x", "a/y", "b/x", "c/c"], 0)
    told = dict(total)
    for step in steps:
        total = {key: count + step.get(key, 0) for key, count in total.items()}
        for family, name, count in tally.grown(row(key, count) for key, count in total.items()):
            assert count > 0
            told[f"{family}/{name}"] += count
    assert told == total


def test_the_line_says_which_family_is_meant_and_the_most_frequent_first() -> None:
    rows = [("datagrams", "duplicate", 31), ("datagrams", "looped", 5210), ("copies", "copies", 2), ("e", "looped", 1)]
    assert in_words(rows) == "datagrams: looped 5,210, duplicate 31; copies 2; e: looped 1"
    assert in_words([("", "filtered", 1000), ("", "late", 3)]) == "filtered 1,000, late 3"
    assert in_fields([*rows, ("", "late", 3)]) == (
        "datagrams/duplicate=31 datagrams/looped=5210 copies=2 e/looped=1 late=3"
    )
