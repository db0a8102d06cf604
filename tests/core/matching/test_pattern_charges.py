"""What patterns are charged for: the memory they take, and their wildcards."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from bccnd.core.matching.pattern_charges import PatternCharges, wildcard_places
from bccnd.core.matching.patterns import DIALECTS, MAX_LEVELS, compile_pattern
from bccnd.core.matching.routes import Routes


def charges_of(dialect: str, *texts: bytes) -> PatternCharges:
    charges = PatternCharges()
    for text in texts:
        charges.add(compile_pattern(text, DIALECTS[dialect]))
    return charges


@pytest.mark.parametrize(
    ("dialect", "texts", "places"),
    [
        # Exact levels and an open end cost nothing.
        *[("path", [b"", b"a", b"a/b/c", b"a/", b"a/>", b"a*b"], 0), ("broker", [b"*", b"a/*", b"a/b"], 0)],
        *[("path", [b"*"], 1), ("path", [b"*/a/b"], 3), ("path", [b"a/b/*/c/>"], 2), ("broker", [b"+/a/*"], 2)],
        # The same places, whatever the text.
        *[("path", [b"*/a", b"*/b/", b"*"], 2), ("path", [b"a/*/c", b"b/*/"], 2), ("path", [b"ab*", b"cd*"], 1)],
        *[("path", [b"*/a", b"a/*"], 3), ("path", [b"ab*", b"a*"], 2), ("sbus-dot", [b"*.a", b"*.a.b"], 3)],
        # A step of any number of levels, and each text behind it, are two places.
        *[("broker", [b"*/a", b"*/b"], 6), ("broker", [b"a/*/a/b", b"b/*/a/c"], 8), ("broker", [b"*/+/a"], 5)],
    ],
)
def test_wildcards_are_charged_by_their_places(dialect: str, texts: list[bytes], places: int) -> None:
    charges = charges_of(dialect, *texts)
    assert charges.wildcards == places
    for text in texts:
        charges.remove(compile_pattern(text, DIALECTS[dialect]))
    assert (charges.wildcards, charges.bytes) == (0, 0)


def test_trees_of_two_separators_have_places_of_their_own() -> None:
    paths, dots = (compile_pattern(b"*", DIALECTS[dialect]) for dialect in ("path", "sbus-dot"))
    assert wildcard_places(paths) == wildcard_places(compile_pattern(b"+", DIALECTS["broker"]))
    assert wildcard_places(paths) != wildcard_places(dots)


def test_there_is_room_for_the_limit_and_for_what_adds_nothing() -> None:
    charges = charges_of("path", b"*/a")
    for text, limit, fits in ((b"*/a/b", 3, True), (b"*/a/b", 2, False), (b"*/b", 1, True), (b"a/b", 0, True)):
        assert charges.has_room([compile_pattern(text, DIALECTS["path"])], limit) == fits


def test_the_wildcards_of_a_user_leave_those_of_others_alone() -> None:
    """All sequences of ``a`` and ``*`` match at once, beyond any limit: no client misses a message."""
    routes: Routes[int] = Routes(DIALECTS["path"])
    for receiver, owner in ((1, "costly"), (2, "other"), (3, "other")):
        routes.join(receiver, b"h/p/%d" % receiver, owner=owner)
    for number in range(2**10):
        routes.subscribe(1, b"/".join([b"*" if number >> level & 1 else b"a" for level in range(10)]) + b"/*")
    chan = b"/".join([b"a"] * 10) + b"/x"
    assert not routes.has_room(1, [b"x/*/x/x*"], 64)
    for receiver, text in ((2, b"a/>"), (3, b"*/a/>")):
        assert routes.has_room(receiver, [text], 64)
        routes.subscribe(receiver, text)
    assert set(routes.find(chan).plain.all) == {1, 2, 3}


FAMILIES: dict[str, Callable[[int], bytes]] = {
    "many leaves": lambda n: b"sensors/host%d/load" % n,
    "deep": lambda n: b"%d/" % n + b"/".join([b"level%d" % level for level in range(MAX_LEVELS - 1)]),
    "wildcards": lambda n: b"%d/" % n + b"/".join([b"*", b"a"] * 8),
    "prefixes": lambda n: b"%d/load*" % n,
    "long": lambda n: b"%d" % n + b"x" * 1000,
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dialect", ["path", "broker"])
def test_patterns_are_charged_for_the_memory_they_take(family: str, dialect: str) -> None:
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
