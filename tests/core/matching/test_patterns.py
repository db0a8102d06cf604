"""Pattern dialects: a table for each, the tree against a naive matcher, and which patterns cover others."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.patterns import DIALECTS, compile_pattern, covers
from tests.core import naive
from tests.core.material import examples

#: dialects, pattern, keys that match, keys that do not
ALL = ("path", "sbus", "sbus-dot", "broker")
SLASHED = ("path", "sbus", "broker")
GREEDY = ("path", "sbus")
TABLE: list[tuple[tuple[str, ...], bytes, list[bytes], list[bytes]]] = [
    (ALL, b"", [b"", b"a", b"a/b", b"a.b", b"/", b".", b"//", b"*"], []),
    (ALL, b"a", [b"a"], [b"", b"A", b"ab", b"a/", b"a.", b"a/b", b"a.b", b"/a", b".a"]),
    # An empty token is a token.
    (SLASHED, b"a//b", [b"a//b"], [b"a/b", b"a/x/b", b"a///b"]),
    # A star takes all up to the next separator, be it nothing.
    (GREEDY, b"*", [b"a", b"", b"*", b"a.b"], [b"a/b", b"/", b"a/"]),
    (GREEDY, b"a/*", [b"a/b", b"a/", b"a/bc"], [b"a", b"a/b/", b"a/b/c", b"b/a"]),
    (GREEDY, b"a/*/c", [b"a/b/c", b"a//c"], [b"a/c", b"a/b/b/c", b"a/b/c/d"]),
    # What follows a star in its token has nothing left to match.
    (GREEDY, b"a*b", [], [b"ab", b"axb", b"a*b", b"a", b"b"]),
    # A separator at the end takes everything below, the empty token too.
    (GREEDY, b"a/", [b"a/", b"a/b", b"a/b/c", b"a//", b"a/*"], [b"a", b"ab", b"ab/", b"b/a/", b"/a/"]),
    (GREEDY, b"/", [b"/", b"/a", b"/a/b", b"//"], [b"", b"a", b"a/"]),
    # > at the end of a path takes one or more tokens; elsewhere it is a byte.
    (("path",), b">", [b"", b"a", b"a/b", b"/", b">"], []),
    (("path",), b"a/>", [b"a/", b"a/b", b"a/b/c", b"a/>"], [b"a", b"ab/c", b"b/a"]),
    (("path",), b">/a", [b">/a"], [b"x/a", b"a"]),
    (("path",), b"a>", [b"a>"], [b"a", b"ab", b"a/b"]),
    (("sbus", "sbus-dot", "broker"), b">", [b">"], [b"", b"a", b"a/b"]),
    (("sbus", "broker"), b"a/>", [b"a/>"], [b"a/b", b"a/", b"a/b/c"]),
    # + is a level of the broker only.
    (("path", "sbus", "sbus-dot"), b"+", [b"+"], [b"a", b""]),
    # The same with dots, where a slash is only a byte; the examples are those of sbus.
    (("sbus-dot",), b"a.*.c.", [b"a.b.c.", b"a.b.c.d.e", b"a..c."], [b"a.b.c", b"a.c.d"]),
    (("sbus-dot",), b"*", [b"a", b"a/b", b""], [b"a.b"]),
    (("sbus-dot",), b"a.b", [b"a.b"], [b"a/b", b"axb", b"a.b."]),
    # The broker: + is one level, * any number of levels, none of them inside a level.
    (("broker",), b"+", [b"a", b"", b"+"], [b"a/b", b"/"]),
    (("broker",), b"a/+", [b"a/b", b"a/"], [b"a", b"a/b/c"]),
    (("broker",), b"a*", [b"a*"], [b"ab", b"a", b"a/b"]),
    (("broker",), b"*", [b"", b"a", b"a/b", b"a/b/c", b"/"], []),
    (("broker",), b"a/*", [b"a", b"a/", b"a/b", b"a/b/c"], [b"b", b"b/a", b"ab"]),
    (("broker",), b"*/a", [b"a", b"b/a", b"/a", b"b/c/a", b"a/a"], [b"", b"b", b"a/b"]),
    (("broker",), b"a/*/b", [b"a/b", b"a/x/b", b"a/b/b", b"a/x/y/b"], [b"a", b"b", b"a/b/x"]),
    (("broker",), b"+/*", [b"a", b"a/b", b"", b"a/b/c"], []),
    (("broker",), b"a/", [b"a/"], [b"a", b"a/b", b"a//"]),
]


def tree_of(dialect: str, *patterns: bytes) -> PatternTree[int]:
    tree: PatternTree[int] = PatternTree(DIALECTS[dialect])
    for number, text in enumerate(patterns):
        tree.add(tree.compile(text), number)
    return tree


@pytest.mark.parametrize(("dialects", "pattern", "matching", "others"), TABLE)
def test_patterns_match_as_in_the_table(
    dialects: tuple[str, ...], pattern: bytes, matching: list[bytes], others: list[bytes]
) -> None:
    for dialect in dialects:
        tree = tree_of(dialect, pattern)
        assert [key for key in matching + others if tree.match(key)] == matching
        assert [key for key in matching + others if naive.matches(dialect, pattern, key)] == matching


class Case(NamedTuple):
    """A dialect with patterns and keys of it."""

    dialect: str
    patterns: list[bytes]
    keys: list[bytes]


def cases() -> st.SearchStrategy[Case]:
    return st.sampled_from(naive.DIALECT_NAMES).flatmap(
        lambda dialect: st.builds(
            Case,
            st.just(dialect),
            st.lists(naive.patterns(dialect), min_size=1, max_size=8),
            st.lists(naive.keys(dialect), min_size=1, max_size=6),
        )
    )


@given(cases(), st.data())
@examples(400)
def test_the_tree_finds_what_the_naive_matcher_finds(case: Case, data: st.DataObject) -> None:
    tree: PatternTree[int] = PatternTree(DIALECTS[case.dialect])
    held: Counter[tuple[bytes, int]] = Counter()
    for text in case.patterns + case.patterns:
        receiver = data.draw(st.integers(0, 2))
        tree.add(tree.compile(text), receiver)
        held[text, receiver] += 1
    for text, receiver in data.draw(st.permutations(sorted(held.elements()))):
        for key in [*case.keys, *case.patterns]:
            taken = {who for (what, who), count in held.items() if count and naive.matches(case.dialect, what, key)}
            assert set(tree.match(key)) == taken
        tree.remove(tree.compile(text), receiver)
        held[text, receiver] -= 1
    assert not tree


def covered(wide: tuple[str, bytes], narrow: tuple[str, bytes]) -> bool:
    """Each pattern with the dialect in which it is written."""
    return covers(*(compile_pattern(text, DIALECTS[dialect]) for dialect, text in (wide, narrow)))


#: dialects that split keys at the same separator, so that patterns of one can be compared with those of the other
COMPARABLE = [
    (wide, narrow) for wide in ALL for narrow in ALL if DIALECTS[wide].separator == DIALECTS[narrow].separator
]


def written(dialect: str) -> st.SearchStrategy[tuple[str, bytes]]:
    return naive.patterns(dialect).map(lambda text: (dialect, text))


def pairs() -> st.SearchStrategy[tuple[tuple[str, bytes], tuple[str, bytes]]]:
    """Two patterns that may be compared, as drawn or the second made of the first."""
    return st.sampled_from(COMPARABLE).flatmap(lambda both: st.tuples(written(both[0]), written(both[1])))


def fitting(dialect: str, text: bytes) -> st.SearchStrategy[bytes]:
    """Keys of which most match a pattern: its own text, with something in place of what may vary, and perhaps more."""
    mark = naive.separator(dialect)
    token = st.sampled_from([b"", b"a", b"ab", b"b", b"*", b"+", b">"])
    many = st.lists(token, max_size=3)

    def instead(piece: bytes) -> st.SearchStrategy[list[bytes]]:
        if piece == b"*" and dialect == "broker":
            return many
        if piece == b"+" and dialect == "broker":
            return token.map(lambda one: [one])
        return st.builds(lambda head, tail: [head + tail], st.just(piece.partition(b"*")[0]), token)

    pieces = st.tuples(*map(instead, text.split(mark))).map(lambda found: [one for group in found for one in group])
    return st.builds(lambda found, more: mark.join(found + more), pieces, st.one_of(st.just([]), many))


@given(pairs(), st.data())
@examples(300)
def test_what_covers_takes_every_key_that_the_covered_one_takes(
    both: tuple[tuple[str, bytes], tuple[str, bytes]], data: st.DataObject
) -> None:
    wide, narrow = both
    if covered(wide, narrow):
        for key in data.draw(st.lists(fitting(*narrow) | naive.keys(narrow[0]), min_size=5, max_size=10)):
            assert naive.matches(*wide, key) or not naive.matches(*narrow, key)


@given(st.sampled_from(ALL).flatmap(written))
@examples(200)
def test_every_pattern_covers_itself_and_what_matches_nothing(pattern: tuple[str, bytes]) -> None:
    assert covered(pattern, pattern)
    if pattern[0] != "broker":
        assert covered(pattern, (pattern[0], b"a*b"))


@given(st.sampled_from(ALL).flatmap(lambda dialect: st.tuples(written(dialect), naive.keys(dialect))))
@examples(300)
def test_a_single_key_is_covered_by_just_what_matches_it(both: tuple[tuple[str, bytes], bytes]) -> None:
    (dialect, text), key = both
    if compile_pattern(key, DIALECTS[dialect]).literal:
        assert covered((dialect, text), (dialect, key)) == naive.matches(dialect, text, key)


#: dialects of both, the wide pattern, what it must cover, what it must not
COVERS: list[tuple[tuple[str, str], bytes, list[bytes], list[bytes]]] = [
    (("path", "path"), b"", [b"", b">", b"a", b"*", b"*/", b"a/>", b"a*/b/", b"/"], []),
    (("path", "path"), b"a/", [b"a/", b"a/>", b"a/b", b"a/*", b"a/*/c/", b"a//"], [b"a", b"*", b"a*", b"*/", b""]),
    (("path", "path"), b"*", [b"a", b"*", b"a*", b"+"], [b"a/b", b"*/", b"", b"a/"]),
    (("path", "path"), b"a*", [b"a", b"ab", b"ab*", b"a**"], [b"b*", b"*", b"a*/"]),
    (("path", "path"), b"*/", [b"a/", b"a/b", b"*/*", b"a*/b/"], [b"a", b"*", b""]),
    (("path", "path"), b"a/*/c", [b"a/b/c", b"a/b*/c", b"a//c"], [b"a/", b"a/*", b"a/*/", b"a/*/c/"]),
    (("path", "path"), b"a*b", [b"a*b", b"x*y/", b"a*b/c*"], [b"a", b"a*/b"]),
    (("sbus", "path"), b"a/", [b"a/>", b"a/b/>"], [b">", b"a"]),
    (("sbus-dot", "sbus-dot"), b"a.", [b"a.b", b"a.*", b"a.b.", b"a.b/c"], [b"a", b"a/", b"*"]),
    (("broker", "broker"), b"*", [b"*", b"a", b"+", b"a/*", b"*/a", b"", b"*/a/+/*"], []),
    (("broker", "broker"), b"a/*", [b"a", b"a/", b"a/+", b"a/*/b", b"a/+/*", b"a/*/*"], [b"*", b"+", b"*/a", b"+/*"]),
    (("broker", "broker"), b"+/*", [b"a", b"a/*", b"+/+/*", b"", b"+/*/b"], []),
    (("broker", "broker"), b"*/b", [b"b", b"a/b", b"*/a/b", b"+/b", b"*/b/*/b"], [b"*", b"b/*", b"a"]),
    (("broker", "broker"), b"a/*/b", [b"a/b", b"a/+/b", b"a/*/x/*/b"], [b"a/*", b"*/b", b"a"]),
    # An access rule for ">" means everything, in whatever dialect a client subscribes.
    (("path", "broker"), b">", [b"*", b"*/a", b"a/*", b"*/*", b""], []),
    (("sbus", "broker"), b"", [b"*", b"*/a", b"a/*", b"*/*", b""], []),
    (("broker", "path"), b"a/*", [b"a", b"a/", b"a/>", b"a/*/b", b"a/b/"], [b"a*", b"*", b""]),
    (("path", "broker"), b"a/", [b"a/b", b"a/+", b"a/+/*"], [b"a/*", b"a", b"*"]),
    (("path", "broker"), b"*/*", [b"+/+", b"a/+", b"a/b"], [b"*", b"+", b"+/*"]),
]


@pytest.mark.parametrize(("dialects", "wide", "inside", "outside"), COVERS)
def test_patterns_cover_as_in_the_table(
    dialects: tuple[str, str], wide: bytes, inside: list[bytes], outside: list[bytes]
) -> None:
    above, below = dialects
    assert [narrow for narrow in inside + outside if covered((above, wide), (below, narrow))] == inside


def test_covering_is_not_exponential() -> None:
    many = b"/".join([b"*"] * 200)
    assert covered(("broker", many), ("broker", many + b"/a/" + many))
    assert not covered(("broker", many + b"/b"), ("broker", many + b"/a"))
