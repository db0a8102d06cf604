"""Tree of patterns by token, which matches a key against all of them at once.

Invariant: a look-up visits a node at most once. Of the nodes without a wildcard on their path it visits one per level;
the others are bounded by their owners' wildcard places (`pattern_charges`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, Generic, TypeVar

from bccnd.core.matching.patterns import EXACT, MANY, Dialect, Pattern, Step, compile_pattern

#: most tokens of a key, as many as a channel can have; longer keys match only patterns with an open end
MAX_TOKENS: Final = 1025
#: shifted to the bit of a position; a name, because a compiled ``1 <<`` ends at 64 bits
_ONE: Final = 1

R = TypeVar("R", bound=Hashable)


class _Node:
    """A node of the tree. ``ends`` counts the patterns per receiver that end here, ``rests`` those that match one or
    more further tokens. ``wild`` has the children behind a wildcard, by kind: a prefix's kind is its length, so that
    one look-up finds the prefix of this length that a token has."""

    __slots__ = ("ends", "exact", "rests", "wild")

    def __init__(self) -> None:
        self.exact: dict[bytes, _Node] | None = None
        self.wild: dict[int, dict[bytes, _Node]] | None = None
        self.ends: dict[Any, int] | None = None
        self.rests: dict[Any, int] | None = None

    def children(self, kind: int) -> dict[bytes, _Node]:
        """Return the table of children of this kind, which is made if there is none."""
        if kind == EXACT:
            if self.exact is None:
                self.exact = {}
            return self.exact
        if self.wild is None:
            self.wild = {}
        return self.wild.setdefault(kind, {})

    def drop(self, kind: int, token: bytes) -> None:
        """Remove a child."""
        table = self.children(kind)
        del table[token]
        if not table and kind == EXACT:
            self.exact = None
        elif not table and self.wild is not None:
            del self.wild[kind]
            self.wild = self.wild or None

    def empty(self) -> bool:
        return not (self.exact or self.wild or self.ends or self.rests)


def _added(holders: dict[R, int] | None, receiver: R, count: int) -> dict[R, int] | None:
    """Add to a receiver's count; None if no receiver is left."""
    holders = {} if holders is None else holders
    holders[receiver] = holders.get(receiver, 0) + count
    if not holders[receiver]:
        del holders[receiver]
    return holders or None


class PatternTree(Generic[R]):
    """Patterns with their receivers. All dialects with one separator can share a tree."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._root: _Node = _Node()
        #: patterns that match one key only, by that key
        self._literals: dict[bytes, dict[R, int]] = {}

    def __bool__(self) -> bool:
        """Whether there is any pattern."""
        return bool(self._literals) or not self._root.empty()

    def compile(self, text: bytes) -> Pattern:
        return compile_pattern(text, self.dialect)

    def add(self, pattern: Pattern, receiver: R) -> None:
        self._change(pattern, receiver, 1)

    def remove(self, pattern: Pattern, receiver: R) -> None:
        """Undo one `add`; empty nodes are removed."""
        self._change(pattern, receiver, -1)

    def _change(self, pattern: Pattern, receiver: R, count: int) -> None:
        if pattern.steps is None:
            return
        if pattern.literal:
            key = pattern.separator.join([token for _, token in pattern.steps])
            holders = _added(self._literals.pop(key, None), receiver, count)
            if holders is not None:
                self._literals[key] = holders
            return
        path: list[tuple[_Node, Step]] = []
        node = self._root
        for kind, token in pattern.steps:
            path.append((node, (kind, token)))
            node = node.children(kind).setdefault(token, _Node())
        if pattern.ends:
            node.ends = _added(node.ends, receiver, count)
        if pattern.rests:
            node.rests = _added(node.rests, receiver, count)
        for above, (kind, token) in reversed(path):
            if not node.empty():
                break
            above.drop(kind, token)
            node = above

    def match(self, key: bytes) -> dict[R, int]:
        """Return the receivers whose patterns match, as keys."""
        found: dict[R, int] = {}
        self.collect(key, found)
        return found

    def collect(self, key: bytes, found: dict[R, int]) -> int:
        """Add the receivers whose patterns match to ``found``; return the steps taken, which tests bound."""
        literal = self._literals.get(key)
        if literal is not None:
            found.update(literal)
        if self._root.empty():
            return 0
        walk = _Walk(key.split(self.dialect.separator, MAX_TOKENS), found)
        walk.visit(self._root, 0)
        return walk.steps


class _Walk:
    """A look-up in a tree, and the ``steps`` that it has taken. Positions in the key are numbers of tokens before."""

    __slots__ = ("_count", "_end", "_found", "_tokens", "_where", "steps")

    def __init__(self, tokens: list[bytes], found: dict[Any, int]) -> None:
        self.steps = 0
        self._tokens = tokens
        self._count = len(tokens)
        self._found = found
        #: as bits: the position behind all tokens, and those of each token once they are needed
        self._end = _ONE << self._count
        self._where: dict[bytes, int] = {}

    def visit(self, node: _Node, position: int) -> None:
        """Follow the node that the tokens before a position lead to."""
        self.steps += 1
        if position == self._count:
            self._add_ends(node)
            return
        if node.rests is not None:
            self._add(node.rests)
        token = self._tokens[position]
        if node.exact is not None:
            child = node.exact.get(token)
            if child is not None:
                self.visit(child, position + 1)
        if node.wild is not None:
            for kind, table in node.wild.items():
                self.steps += 1
                if kind < 0:  # MANY; a look-up of the name takes longer
                    self._visit_several(table[b""], 2 * self._end - (_ONE << position))
                elif len(token) >= kind:
                    child = table.get(token[:kind])
                    if child is not None:
                        self.visit(child, position + 1)

    def _visit_several(self, node: _Node, at: int) -> None:
        """Follow a node behind a step of any number of tokens: it is reached at several positions, as bits."""
        self.steps += 1
        if at & self._end:
            self._add_ends(node)
            at -= self._end
        if not at:
            return
        if node.rests is not None:
            self._add(node.rests)
        if node.exact is not None:
            where = self._where or self._index_tokens()
            for token in node.exact if len(node.exact) < len(where) else where:
                self.steps += 1
                reached = at & where.get(token, 0)
                if reached and token in node.exact:
                    self._visit_several(node.exact[token], reached << 1)
        if node.wild is not None:
            for kind, table in node.wild.items():
                self.steps += 1
                behind = 2 * self._end - (at & -at) if kind == MANY else at << 1
                self._visit_several(table[b""], behind)

    def _add_ends(self, node: _Node) -> None:
        if node.ends is not None and self._count <= MAX_TOKENS:
            self._add(node.ends)

    def _add(self, holders: dict[Any, int]) -> None:
        for receiver in holders:  # there are few, and `dict.update` takes longer to begin
            self._found[receiver] = 1

    def _index_tokens(self) -> dict[bytes, int]:
        for number, token in enumerate(self._tokens):
            self._where[token] = self._where.get(token, 0) | _ONE << number
        return self._where
