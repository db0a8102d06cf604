"""Tree of patterns by token, which matches a key against all of them at once.

Invariant: a look-up visits a node at most once. Of the nodes without a wildcard on their path it visits one per level;
the others are bounded by their owners' wildcard places (`pattern_charges`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from bccnd.core.matching.patterns import EXACT, MANY, Dialect, Pattern, Step, compile_pattern

#: most tokens of a key, as many as a channel can have; longer keys match only patterns with an open end
MAX_TOKENS: Final = 1025

R = TypeVar("R", bound=Hashable)


class _Node(Generic[R]):
    """A node of the tree. ``ends`` counts the patterns per receiver that end here, ``rests`` those that match one or
    more further tokens. ``wild`` has the children behind a wildcard, by kind: a prefix's kind is its length, so that
    one look-up finds the prefix of this length that a token has."""

    __slots__ = ("ends", "exact", "rests", "wild")

    def __init__(self) -> None:
        self.exact: dict[bytes, _Node[R]] | None = None
        self.wild: dict[int, dict[bytes, _Node[R]]] | None = None
        self.ends: dict[R, int] | None = None
        self.rests: dict[R, int] | None = None

    def children(self, kind: int) -> dict[bytes, _Node[R]]:
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
        self._root: _Node[R] = _Node()
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
        path: list[tuple[_Node[R], Step]] = []
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
        """Add the receivers whose patterns match to ``found``; return the steps taken, which tests bound.

        A node is reached ``at`` some positions of the key, as bits: bit n is set if n tokens lead to it. There are
        several only behind a step that takes any number of tokens.
        """
        literal = self._literals.get(key)
        if literal is not None:
            found.update(literal)
        if self._root.empty():
            return 1
        tokens = key.split(self.dialect.separator, MAX_TOKENS)
        end = 1 << len(tokens)
        whole = len(tokens) <= MAX_TOKENS
        where: dict[bytes, int] = {}
        steps = 1
        pending: list[tuple[_Node[R], int]] = [(self._root, 1)]
        while pending:
            node, at = pending.pop()
            steps += 1
            if at >= end:
                if whole and node.ends is not None:
                    found.update(node.ends)
                at -= end
            if not at:
                continue
            if node.rests is not None:
                found.update(node.rests)
            first = at & -at
            token = tokens[first.bit_length() - 1]
            if node.exact is not None and at == first:
                child = node.exact.get(token)
                if child is not None:
                    pending.append((child, at << 1))
            elif node.exact is not None:
                where = where or _positions(tokens)
                steps += _follow_several(node.exact, at, where, pending)
            if node.wild is not None:
                steps += _follow_wild(node.wild, at, token, 2 * end - first, pending)
        return steps


def _follow_several(
    table: dict[bytes, _Node[R]], at: int, where: dict[bytes, int], pending: list[tuple[_Node[R], int]]
) -> int:
    """Follow exact tokens from several positions; return the steps taken."""
    few = table if len(table) < len(where) else where
    for token in few:
        reached = at & where.get(token, 0)
        if reached and token in table:
            pending.append((table[token], reached << 1))
    return len(few)


def _follow_wild(
    wild: dict[int, dict[bytes, _Node[R]]], at: int, token: bytes, behind: int, pending: list[tuple[_Node[R], int]]
) -> int:
    """Follow wildcards; return the steps taken. Any number of tokens lead to the positions ``behind``.

    Prefixes are compared with one token: dialects with steps of any number of tokens have none.
    """
    for kind, table in wild.items():
        if kind == MANY:
            pending.append((table[b""], behind))
        elif len(token) >= kind:
            child = table.get(token[:kind])
            if child is not None:
                pending.append((child, at << 1))
    return len(wild)


def _positions(tokens: list[bytes]) -> dict[bytes, int]:
    """Return the positions of each token, as bits."""
    where: dict[bytes, int] = {}
    for number, token in enumerate(tokens):
        where[token] = where.get(token, 0) | 1 << number
    return where
