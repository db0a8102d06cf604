"""What patterns cost: the steps of a look-up, and the memory that is charged for them."""

from __future__ import annotations

from typing import Final

from bccnd.core.matching.pattern_tree import ALLOWANCE, HOLDER_BYTES, PatternTree, TreesByOwner
from bccnd.core.matching.patterns import DIALECTS, MAX_LEVELS, Dialect, Pattern
from bccnd.core.matching.routes import SUBSCRIPTION_BYTES, Routes
from tests.core.naive import DIALECT_NAMES

#: more than any look-up here takes
_ENOUGH: Final = 1 << 40
_OWNERS: Final = 3


def cost(data: bytes) -> object:
    """A dialect, a limit of steps in two bytes, how often the key is repeated, then the key and patterns, a line each:
    a look-up keeps to its limit, finds all or says that it was cut, and leaves the other owners their share; each
    pattern is charged for, and nothing is left of those taken back."""
    head, (text, *lines) = data[:4].ljust(4, b"\0"), data[4:].split(b"\n")
    dialect = DIALECTS[DIALECT_NAMES[head[0] % 4]]
    limit = int.from_bytes(head[1:3], "little")
    key = dialect.separator.join([text] * (head[3] + 1))
    texts = [one for one in lines if dialect.levels_of(one) <= MAX_LEVELS]
    # A look-up notices that it has gone beyond its limit only after a node, with its prefixes and holders.
    slack = 2 + 2 * len(texts)
    return _tree(dialect, texts, key, limit, slack), _owners(dialect, texts, key, limit), _routes(dialect, texts)


def _tree(dialect: Dialect, texts: list[bytes], key: bytes, limit: int, slack: int) -> object:
    tree: PatternTree[int] = PatternTree(dialect)
    held: list[tuple[Pattern, int]] = []
    charges = [0]
    for number, text in enumerate(texts):
        pattern = tree.compile(text)
        tree.add(pattern, number)
        if pattern.steps is None:
            assert tree.bytes == charges[-1], "a pattern that matches nothing is charged for"
            continue
        held.append((pattern, number))
        charges.append(tree.bytes)
        assert charges[-1] - charges[-2] >= HOLDER_BYTES, "a pattern is held for nothing"
    whole: dict[int, int] = {}
    taken = _ENOUGH - tree.collect(key, whole, _ENOUGH)
    found: dict[int, int] = {}
    left = tree.collect(key, found, limit)
    assert left >= -slack, f"{-left} steps too many"
    assert len(found) <= 32 * (limit - left), "receivers are found without steps"
    assert found.keys() <= whole.keys()
    assert (left < 0) == (taken > limit), f"{taken} steps, of {limit} are {left} left"
    assert left < 0 or found == whole
    for pattern, number in held:
        tree.remove(pattern, number)
    assert (tree.bytes, bool(tree)) == (0, False), "something is left"
    return taken, left, sorted(found), charges


def _owners(dialect: Dialect, texts: list[bytes], key: bytes, limit: int) -> object:
    """Patterns of several owners, who may take so many steps beyond the free ones before they are cut."""
    trees: TreesByOwner[int] = TreesByOwner(dialect)
    alone: list[dict[int, int]] = []
    compiled = [PatternTree[int](dialect).compile(text) for text in texts]
    for owner in range(_OWNERS):
        tree: PatternTree[int] = PatternTree(dialect)
        for number in range(owner, len(texts), _OWNERS):
            trees.add(owner, compiled[number], number)
            tree.add(compiled[number], number)
        assert trees.bytes_of(owner) == tree.bytes
        alone.append({})
        tree.collect(key, alone[-1], _ENOUGH)
    trees.refill()
    trees._allowance = min(trees._allowance, limit)
    cuts = []
    for _ in range(8):
        found: dict[int, int] = {}
        cut = trees.collect(key, found)
        cuts.append(cut)
        for owner, whole in enumerate(alone):
            mine = {number for number in found if number % _OWNERS == owner}
            assert mine <= whole.keys()
            assert owner in cut or mine == whole.keys(), f"owner {owner} has missed some without being told"
    trees.refill()
    assert (trees._allowance, trees._spent) == (ALLOWANCE, {})
    for number, pattern in enumerate(compiled):
        trees.remove(number % _OWNERS, pattern, number)
    assert not trees._trees, "something is left"
    return cuts


def _routes(dialect: Dialect, texts: list[bytes]) -> object:
    """The same by way of subscriptions, where also the texts are charged for."""
    routes: Routes[int] = Routes(dialect)
    routes.join(1, b"h/p/1", owner=1000)
    charges = [0]
    for text in texts:
        routes.subscribe(1, text)
        charges.append(routes.bytes_of(1000))
        assert charges[-1] >= charges[-2], "a pattern makes others cheaper"
    assert charges[-1] >= sum(SUBSCRIPTION_BYTES + len(text) for text in set(texts))
    for text in texts:
        assert routes.unsubscribe(1, text)
    assert (routes.bytes_of(1000), routes.subscriptions) == (0, 0), "something is left"
    return charges[-1]
