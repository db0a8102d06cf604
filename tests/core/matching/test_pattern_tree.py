"""The tree of patterns: what it finds, and the steps that it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.matching.pattern_charges import PatternCharges
from bccnd.core.matching.pattern_tree import MAX_TOKENS, PatternTree
from bccnd.core.matching.patterns import DIALECTS, MAX_LEVELS, compile_pattern
from tests.core import naive
from tests.core.material import examples


def hostile_patterns(dialect: str) -> st.SearchStrategy[list[bytes]]:
    """Many patterns that one key matches in many ways."""
    mark = naive.separator(dialect)
    tokens = st.sampled_from([b"*", b"a", b"+", b"a*", b"aa*", b">", b"b"])
    return st.lists(st.lists(tokens, min_size=1, max_size=MAX_LEVELS).map(mark.join), min_size=1, max_size=40)


def filled(dialect: str, patterns: list[bytes]) -> PatternTree[int]:
    tree: PatternTree[int] = PatternTree(DIALECTS[dialect])
    for number, text in enumerate(patterns):
        tree.add(tree.compile(text), number)
    return tree


@given(st.sampled_from(naive.DIALECT_NAMES), st.data(), st.integers(1, MAX_TOKENS), st.sampled_from([b"aa", b"a/b"]))
@examples(200)
def test_a_look_up_takes_only_the_steps_of_the_wildcards(
    dialect: str, data: st.DataObject, levels: int, level: bytes
) -> None:
    patterns = data.draw(hostile_patterns(dialect))
    key = naive.separator(dialect).join([level] * levels)
    tree, charges = filled(dialect, patterns), PatternCharges()
    for text in patterns:
        charges.add(tree.compile(text))
    found: dict[int, int] = {}
    assert tree.collect(key, found) <= 2 * charges.wildcards + MAX_LEVELS + 2
    if key.count(naive.separator(dialect)) < MAX_TOKENS:
        assert set(found) == {n for n, text in enumerate(patterns) if naive.matches(dialect, text, key)}


@pytest.mark.parametrize(
    ("dialect", "text", "matches"),
    [
        *[("path", b"a/>", True), ("path", b"a/", True), ("path", b"", True), ("path", b"a", False)],
        *[("path", b"a/*", False), ("broker", b"a/*", True), ("broker", b"*", True), ("broker", b"*/a", False)],
    ],
)
def test_a_key_of_very_many_levels_matches_open_ends(dialect: str, text: bytes, matches: bool) -> None:
    assert bool(filled(dialect, [text]).match(b"/".join([b"a"] * 20_000))) == matches


def test_a_key_of_the_most_levels_is_matched_to_its_last_token() -> None:
    tree = filled("broker", [b"*/a", b"*/b", b"*/a/+", b"*/a/*/b"])
    assert set(tree.match(b"/".join([b"a"] * MAX_TOKENS))) == {0, 2}


@pytest.mark.parametrize(
    ("text", "plain"), [(b"*/*", b"*"), (b"a/*/*/*/b", b"a/*/b"), (b"*/+/*", b"+/*"), (b"*/+/a/*/+/+", b"+/*/a/+/+/*")]
)
def test_runs_of_wildcards_of_the_broker_are_shortened(text: bytes, plain: bytes) -> None:
    assert compile_pattern(text, DIALECTS["broker"]) == compile_pattern(plain, DIALECTS["broker"])
