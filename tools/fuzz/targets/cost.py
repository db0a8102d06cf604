"""What patterns cost: the steps of a look-up, and the memory that is charged for them."""

from __future__ import annotations

from bccnd.core.matching.pattern_charges import SUBSCRIPTION_BYTES, PatternCharges
from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.patterns import DIALECTS, MAX_LEVELS, Dialect
from bccnd.core.matching.routes import Routes
from tests.core.naive import DIALECT_NAMES

_OWNERS = 3


def cost(data: bytes) -> object:
    """A dialect, and in the fourth byte how often the key is repeated; then the key and patterns, a line each: a
    look-up takes no more steps than the wildcards of all owners allow, each pattern is charged for, and nothing is left
    of those taken back."""
    head, (text, *lines) = data[:4].ljust(4, b"\0"), data[4:].split(b"\n")
    dialect = DIALECTS[DIALECT_NAMES[head[0] % 4]]
    key = dialect.separator.join([text] * (head[3] + 1))
    texts = [one for one in lines if dialect.levels_of(one) <= MAX_LEVELS]
    return _steps(dialect, texts, key), _routes(dialect, texts)


def _steps(dialect: Dialect, texts: list[bytes], key: bytes) -> object:
    tree: PatternTree[int] = PatternTree(dialect)
    owners = [PatternCharges() for _ in range(_OWNERS)]
    patterns = [tree.compile(text) for text in texts]
    for number, pattern in enumerate(patterns):
        tree.add(pattern, number)
        owners[number % _OWNERS].add(pattern)
    found: dict[int, int] = {}
    steps, wildcards = tree.collect(key, found), sum(one.wildcards for one in owners)
    assert steps <= 2 * wildcards + MAX_LEVELS + 2, f"{steps} steps for {wildcards} wildcards"
    for number, pattern in enumerate(patterns):
        tree.remove(pattern, number)
        owners[number % _OWNERS].remove(pattern)
    assert not tree, "something is left"
    assert not any(one.bytes or one.wildcards for one in owners), "something is left"
    return steps, wildcards, sorted(found)


def _routes(dialect: Dialect, texts: list[bytes]) -> object:
    """The same by way of subscriptions."""
    routes: Routes[int] = Routes(dialect)
    routes.join(1, b"h/p/1", owner=1000)
    charges = [0]
    for text in texts:
        routes.subscribe(1, text)
        charges.append(routes.bytes_of(1000))
        assert charges[-1] >= charges[-2], "a pattern makes others cheaper"
    assert charges[-1] >= SUBSCRIPTION_BYTES * len(set(texts))
    for text in texts:
        assert routes.unsubscribe(1, text)
    assert (routes.bytes_of(1000), routes.subscriptions) == (0, 0), "something is left"
    return charges[-1]
