"""The tree of patterns: what it finds, the steps that it takes, the memory that it is charged for."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.matching import pattern_tree
from bccnd.core.matching.pattern_tree import LEAST_STEPS, MAX_STEPS, MAX_TOKENS, PatternTree, TreesByOwner
from bccnd.core.matching.patterns import DIALECTS, MAX_LEVELS, Pattern, compile_pattern
from bccnd.core.matching.routes import Routes
from tests.core import naive
from tests.core.material import examples

#: steps beyond its limit in which a look-up notices it: those of the prefixes at one node
SLACK = 1100


def hostile_patterns(dialect: str) -> st.SearchStrategy[list[bytes]]:
    """Many patterns that one key matches in many ways."""
    mark = naive.separator(dialect)
    tokens = st.sampled_from([b"*", b"a", b"+", b"a*", b"aa*", b">"])
    return st.lists(st.lists(tokens, min_size=1, max_size=MAX_LEVELS).map(mark.join), min_size=1, max_size=40)


def filled(dialect: str, patterns: list[bytes]) -> PatternTree[int]:
    tree: PatternTree[int] = PatternTree(DIALECTS[dialect])
    for number, text in enumerate(patterns):
        tree.add(tree.compile(text), number)
    return tree


@given(st.sampled_from(naive.DIALECT_NAMES), st.data(), st.integers(0, 300), st.integers(1, 2 * MAX_TOKENS))
@examples(200)
def test_no_look_up_takes_more_steps_than_it_may(dialect: str, data: st.DataObject, limit: int, levels: int) -> None:
    patterns = data.draw(hostile_patterns(dialect))
    key = naive.separator(dialect).join([b"aa"] * levels)
    tree = filled(dialect, patterns)
    found: dict[int, int] = {}
    left = tree.collect(key, found, limit)
    assert left >= -SLACK
    whole: dict[int, int] = {}
    if tree.collect(key, whole, 1_000_000) >= 0 and levels <= MAX_TOKENS:
        assert set(whole) == {n for n, text in enumerate(patterns) if naive.matches(dialect, text, key)}
    assert set(found) <= set(whole)
    assert left < 0 or found == whole


#: texts with nodes in common, at which patterns end, go on and take the rest
SHARED = st.sampled_from([b"a", b"a/", b"a/>", b"a/b", b"a*", b"a*/b", b"*", b"*/b", b"+", b""])


@given(
    st.sampled_from(naive.DIALECT_NAMES),
    st.lists(st.tuples(SHARED, st.integers(1, 2)), min_size=1, max_size=12),
    st.lists(st.tuples(SHARED, st.integers(1, 2)), max_size=12),
)
@examples(200)
def test_what_is_removed_leaves_the_others_as_if_they_were_alone(
    dialect: str, removed: list[tuple[bytes, int]], kept: list[tuple[bytes, int]]
) -> None:
    tree, alone = filled(dialect, []), filled(dialect, [])
    for text, receiver in (*removed, *kept):
        tree.add(tree.compile(text), receiver)
    for text, receiver in removed:
        tree.remove(tree.compile(text), receiver)
    for text, receiver in kept:
        alone.add(alone.compile(text), receiver)
    assert (bool(tree), tree.bytes) == (bool(alone), alone.bytes)
    assert bool(tree) == (tree.bytes > 0)
    for key in (b"a", b"a/b", b"ab", b"ab/b", b"a/c/d", b"b"):
        assert set(tree.match(key)) == set(alone.match(key))


def test_a_look_up_stops_as_soon_as_its_steps_are_used_up() -> None:
    # Each level doubles the nodes that match.
    patterns = [b"/".join([b"*" if number >> level & 1 else b"a" for level in range(10)]) for number in range(2**10)]
    tree, key = filled("path", patterns), b"/".join([b"a"] * 10)
    whole = 1_000_000 - tree.collect(key, {}, 1_000_000)
    assert whole >= 3 * (2**10 - 1)  # each node above the last level and its table of prefixes, and each of the last
    assert tree.collect(key, {}, whole) == 0
    for limit in (*range(0, whole, 97), *range(whole - 20, whole)):
        assert -3 <= tree.collect(key, {}, limit) < 0


def test_of_the_prefixes_and_the_lengths_of_a_token_the_fewer_are_tried() -> None:
    many, long = filled("path", [b"p%d*" % number for number in range(5000)]), filled("path", [b"a" * 900 + b"*"])
    assert many.collect(b"a", {}, 100) > 90
    assert long.collect(b"a" * 300_000, {}, 100) > 90


def test_an_owner_has_all_steps_while_it_is_alone_and_leaves_nothing() -> None:
    trees: TreesByOwner[int] = TreesByOwner(DIALECTS["broker"])
    costly, never = compile_pattern(b"/".join([b"*/a"] * 8), trees.dialect), Pattern(None, False, False)
    for pattern in (costly, never):
        trees.add("costly", pattern, 1)
    key = b"/".join([b"a"] * 600)
    assert filled("broker", [b"/".join([b"*/a"] * 8)]).collect(key, {}, MAX_STEPS // 2) < 0
    assert trees.collect(key, {}) == ()
    trees.add("other", never, 1)
    assert not trees.remove("other", never, 1)
    trees.add("costly", costly, 2)
    assert [trees.remove("costly", costly, receiver) for receiver in (1, 2)] == [False, True]
    assert not trees._trees


@pytest.mark.parametrize(
    ("dialect", "text", "matches"),
    [
        *[("path", b"a/>", True), ("path", b"a/", True), ("path", b"", True), ("path", b"a", False)],
        *[("path", b"a/*", False), ("broker", b"a/*", True), ("broker", b"*", True), ("broker", b"*/a", False)],
    ],
)
def test_a_key_of_very_many_levels_is_matched_by_what_takes_everything_below(
    dialect: str, text: bytes, matches: bool
) -> None:
    assert bool(filled(dialect, [text]).match(b"/".join([b"a"] * 20_000))) == matches


def test_a_key_of_the_most_levels_is_matched_to_its_last_token() -> None:
    tree = filled("broker", [b"*/a", b"*/b"])
    assert set(tree.match(b"/".join([b"a"] * MAX_TOKENS))) == {0}


def test_a_long_token_is_compared_with_no_more_of_it_than_the_longest_prefix() -> None:
    tree = filled("path", [b"a" * n + b"*" for n in range(900)])
    found: dict[int, int] = {}
    assert tree.collect(b"a" * 300_000, found, MAX_STEPS) >= MAX_STEPS - 2000
    assert len(found) == 900


def test_patterns_that_are_too_costly_leave_those_of_others_alone() -> None:
    """All sequences of ``a`` and ``*`` match at once: more nodes than a look-up may visit."""
    routes: Routes[int] = Routes(DIALECTS["path"])
    cut: list[tuple[bytes, object]] = []
    routes.on_cut = lambda key, owners: cut.append((key, owners))
    for receiver, owner in ((1, "costly"), (2, "other"), (3, "other")):
        routes.join(receiver, b"h/p/%d" % receiver, owner=owner)
    for number in range(2**14):
        routes.subscribe(1, b"/".join([b"*" if number >> level & 1 else b"a" for level in range(14)]) + b"/x")
    chan = b"/".join([b"a"] * 14)
    routes.subscribe(2, b"a/>")
    routes.subscribe(3, chan)
    route = routes.find(chan)
    assert set(route.plain.all) == {2, 3}
    assert route.cut == ("costly",)
    assert route.special
    routes.report_cut(route)
    assert routes.local(chan + b" ").all == (2,)
    assert cut == [(chan, ("costly",)), (chan + b" ", ("costly",))]
    assert routes.find(b"b/b").cut == ()


@pytest.mark.parametrize("again", [False, True], ids=["a new owner", "all patterns removed and added again"])
def test_an_owner_has_one_allowance_between_two_refills(again: bool) -> None:
    trees: TreesByOwner[int] = TreesByOwner(DIALECTS["broker"])
    pattern = compile_pattern(b"/".join([b"*/a"] * 8), trees.dialect)
    trees.refill()
    trees.add("costly", pattern, 1)

    def complete(number: int) -> bool:
        if again:
            trees.remove("costly", pattern, 1)
            trees.add("costly", pattern, 1)
        return not trees.collect(b"/".join([b"a"] * 300) + b"/%d/a" % number, {})

    assert complete(0)
    assert not all(complete(number) for number in range(200))
    trees.refill()
    assert complete(0)


def test_steps_beyond_the_free_ones_are_charged_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    text, key = b"/".join([b"*/a"] * 4), b"/".join([b"a"] * 50)
    whole = MAX_STEPS - filled("broker", [text]).collect(key, {}, MAX_STEPS)
    for name, value in {"MAX_STEPS": whole, "LEAST_STEPS": 1, "FREE_STEPS": whole - 10, "ALLOWANCE": 20}.items():
        monkeypatch.setattr(pattern_tree, name, value)
    trees: TreesByOwner[int] = TreesByOwner(DIALECTS["broker"])
    trees.add("costly", compile_pattern(text, trees.dialect), 1)
    trees.refill()
    for used, spent in ((b"b", False), (key, False), (b"b", False), (key, True)):
        assert trees.collect(used, {}) == ()
        assert trees.has_spent("costly") == spent
    trees.refill()
    assert not trees.has_spent("costly")


def test_each_of_very_many_owners_has_some_steps() -> None:
    trees: TreesByOwner[int] = TreesByOwner(DIALECTS["path"])
    deep = [b"/".join([b"*"] * MAX_LEVELS), b"/".join([b"a"] * MAX_LEVELS)]
    for owner in range(2 * MAX_STEPS // LEAST_STEPS):
        for text in deep:
            trees.add(owner, compile_pattern(text, trees.dialect), owner)
    found: dict[int, int] = {}
    assert trees.collect(deep[1], found) == ()
    assert len(found) == 2 * MAX_STEPS // LEAST_STEPS


FAMILIES: dict[str, Callable[[int], bytes]] = {
    "many leaves": lambda n: b"sensors/host%d/load" % n,
    "deep": lambda n: b"%d/" % n + b"/".join([b"level%d" % level for level in range(MAX_LEVELS - 1)]),
    "wildcards": lambda n: b"/".join([b"*", b"%d" % n] * 20),
    "prefixes": lambda n: b"sensors/%d*" % n,
    "long": lambda n: b"%d" % n + b"x" * 1000,
    "single": lambda n: b"%d" % n,
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dialect", ["path", "broker"])
def test_patterns_are_charged_within_a_factor_of_two_of_the_memory_they_take(family: str, dialect: str) -> None:
    routes: Routes[int] = Routes(DIALECTS[dialect])
    routes.join(1, b"h/p/1", owner=1000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(500):
            routes.subscribe(1, FAMILIES[family](number))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / 2 <= routes.bytes_of(1000) <= 2 * taken
    routes.leave(1)
    assert routes.bytes_of(1000) == 0


@pytest.mark.parametrize(
    ("text", "plain"), [(b"*/*", b"*"), (b"a/*/*/*/b", b"a/*/b"), (b"*/+/*", b"+/*"), (b"*/+/a/*/+/+", b"+/*/a/+/+/*")]
)
def test_runs_of_wildcards_of_the_broker_are_written_in_the_shortest_way(text: bytes, plain: bytes) -> None:
    assert compile_pattern(text, DIALECTS["broker"]) == compile_pattern(plain, DIALECTS["broker"])
