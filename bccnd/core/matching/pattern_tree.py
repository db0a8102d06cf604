"""Tree of patterns by token, which matches a key against all of them at once.

The steps of a look-up are bounded and the memory of a tree is estimated, so that owners can be charged for both.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from bccnd.core.matching.patterns import EXACT, MANY, Dialect, Pattern, Step, compile_pattern

#: most tokens of a key, more than any channel has; longer keys match only patterns with an open end
MAX_TOKENS: Final = 1025
#: steps of one look-up, over all owners: some milliseconds
MAX_STEPS: Final = 16_384
#: least steps for one owner
LEAST_STEPS: Final = 512
#: steps per look-up that are not charged to the owner
FREE_STEPS: Final = 256
#: charged steps of an owner between two `refill`, in REFILL seconds
ALLOWANCE: Final = 50_000
REFILL: Final = 0.25
_NO_LIMIT: Final = 1 << 60
#: receivers that are collected in one step
_AT_ONCE: Final = 16
#: estimated bytes of a node besides its token
NODE_BYTES: Final = 320
#: estimated bytes of a receiver at a node
HOLDER_BYTES: Final = 128

R = TypeVar("R", bound=Hashable)


class _Node(Generic[R]):
    """A node of the tree. ``ends`` counts the patterns per receiver that end here, ``rests`` those that match one or
    more further tokens; a node with ``loops`` matches any number of tokens; ``longest`` is the length of the longest
    key that ``prefix`` ever had."""

    __slots__ = ("ends", "exact", "longest", "loops", "many", "prefix", "rests")

    def __init__(self, loops: bool = False) -> None:
        self.exact: dict[bytes, _Node[R]] | None = None
        self.prefix: dict[bytes, _Node[R]] | None = None
        self.many: _Node[R] | None = None
        self.loops = loops
        self.longest = 0
        self.ends: dict[R, int] | None = None
        self.rests: dict[R, int] | None = None

    def child(self, kind: int, token: bytes) -> _Node[R] | None:
        if kind == MANY:
            return self.many
        table = self.exact if kind == EXACT else self.prefix
        return None if table is None else table.get(token)

    def grow(self, kind: int, token: bytes) -> _Node[R]:
        """Add a child."""
        node: _Node[R] = _Node(loops=kind == MANY)
        if kind == MANY:
            self.many = node
        elif kind == EXACT:
            self.exact = self.exact or {}
            self.exact[token] = node
        else:
            self.prefix = self.prefix or {}
            self.prefix[token] = node
            self.longest = max(self.longest, len(token))
        return node

    def drop(self, kind: int, token: bytes) -> None:
        if kind == MANY:
            self.many = None
        elif kind == EXACT and self.exact is not None:
            del self.exact[token]
            self.exact = self.exact or None
        elif self.prefix is not None:
            del self.prefix[token]
            self.prefix = self.prefix or None

    def holders(self, rest: bool) -> dict[R, int]:
        if rest:
            self.rests = {} if self.rests is None else self.rests
            return self.rests
        self.ends = {} if self.ends is None else self.ends
        return self.ends

    def release(self, receiver: R, rest: bool) -> bool:
        """Remove one pattern; True if it was the receiver's last one here."""
        holders = self.holders(rest)
        holders[receiver] -= 1
        if holders[receiver]:
            return False
        del holders[receiver]
        if not holders and rest:
            self.rests = None
        elif not holders:
            self.ends = None
        return True

    def empty(self) -> bool:
        return not (self.exact or self.prefix or self.many or self.ends or self.rests)


def _add_holders(holders: dict[R, int], found: dict[R, int]) -> int:
    """Add the receivers at a node; return the steps taken."""
    found.update(holders)
    return len(holders) // _AT_ONCE


class PatternTree(Generic[R]):
    """Patterns of one dialect with their receivers; ``bytes`` is the estimated memory."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.bytes = 0
        self._root: _Node[R] = _Node()

    def __bool__(self) -> bool:
        """Whether there is any pattern."""
        return not self._root.empty()

    def compile(self, text: bytes) -> Pattern:
        return compile_pattern(text, self.dialect)

    def add(self, pattern: Pattern, receiver: R) -> None:
        if pattern.steps is None:
            return
        node = self._root
        for kind, token in pattern.steps:
            child = node.child(kind, token)
            if child is None:
                child = node.grow(kind, token)
                self.bytes += NODE_BYTES + len(token)
            node = child
        holders = node.holders(pattern.rest)
        if receiver not in holders:
            self.bytes += HOLDER_BYTES
        holders[receiver] = holders.get(receiver, 0) + 1

    def remove(self, pattern: Pattern, receiver: R) -> None:
        """Undo one `add`; empty nodes are removed."""
        if pattern.steps is None:
            return
        path: list[tuple[_Node[R], Step]] = []
        node = self._root
        for kind, token in pattern.steps:
            path.append((node, (kind, token)))
            child = node.child(kind, token)
            assert child is not None  # noqa: S101 - it was added
            node = child
        if node.release(receiver, pattern.rest):
            self.bytes -= HOLDER_BYTES
        for above, (kind, token) in reversed(path):
            if not node.empty():
                break
            above.drop(kind, token)
            self.bytes -= NODE_BYTES + len(token)
            node = above

    def match(self, key: bytes) -> dict[R, int]:
        """Return the receivers whose patterns match, as keys, within `MAX_STEPS`."""
        found: dict[R, int] = {}
        self.collect(key, found, MAX_STEPS)
        return found

    def collect(self, key: bytes, found: dict[R, int], steps: int) -> int:
        """Add the receivers whose patterns match to ``found``, in about ``steps`` at most.

        Returns the steps left; below 0 if the walk was stopped and receivers may be missing.
        """
        states = self._with_loops([self._root])
        tokens = key.split(self.dialect.separator, MAX_TOKENS)
        beyond = len(tokens) > MAX_TOKENS
        if beyond:
            tokens.pop()
        for token in tokens:
            following: list[_Node[R]] = []
            for node in states:
                steps -= 1
                if node.rests is not None:
                    steps -= _add_holders(node.rests, found)
                if node.loops:
                    following.append(node)
                if node.exact is not None:
                    child = node.exact.get(token)
                    if child is not None:
                        following.append(child)
                if node.prefix is not None:
                    steps -= self._add_prefixed(node.prefix, node.longest, token, following)
                if steps < 0:
                    return steps
            if not following:
                return steps
            states = self._with_loops(following)
        for node in states:
            steps -= 1
            holders = node.ends if not beyond or node.loops else None
            if holders is not None:
                steps -= _add_holders(holders, found)
            if beyond and node.rests is not None:
                steps -= _add_holders(node.rests, found)
            if steps < 0:
                return steps
        return steps

    @staticmethod
    def _add_prefixed(table: dict[bytes, _Node[R]], longest: int, token: bytes, following: list[_Node[R]]) -> int:
        """Add the entries whose key is a prefix of the token, the shorter way; return the number of tries."""
        lengths = min(len(token), longest) + 1
        if len(table) <= lengths:
            following.extend([node for prefix, node in table.items() if token.startswith(prefix)])
            return len(table)
        for length in range(lengths):
            node = table.get(token[:length])
            if node is not None:
                following.append(node)
        return lengths

    def _with_loops(self, nodes: list[_Node[R]]) -> list[_Node[R]]:
        """Add the nodes reached without consuming a token."""
        if not self.dialect.levels:
            return nodes
        reached: dict[int, _Node[R]] = {}
        for start in nodes:
            node: _Node[R] | None = start
            while node is not None and id(node) not in reached:
                reached[id(node)] = node
                node = node.many
        return list(reached.values())


class TreesByOwner(Generic[R]):
    """A tree per owner of receivers, so that one owner's patterns cannot make look-ups fail for others."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._trees: dict[Hashable, PatternTree[R]] = {}
        #: unlimited until the first `refill`
        self._allowance = _NO_LIMIT
        #: charged steps since the last refill, of owners that have some; an owner without patterns keeps them until
        #: `forget`
        self._spent: dict[Hashable, int] = {}

    def bytes_of(self, owner: Hashable) -> int:
        """Return the estimated bytes of an owner's patterns."""
        tree = self._trees.get(owner)
        return 0 if tree is None else tree.bytes

    def add(self, owner: Hashable, pattern: Pattern, receiver: R) -> None:
        if pattern.steps is None:
            return
        tree = self._trees.get(owner)
        if tree is None:
            tree = self._trees[owner] = PatternTree(self.dialect)
        tree.add(pattern, receiver)

    def remove(self, owner: Hashable, pattern: Pattern, receiver: R) -> bool:
        """Undo one `add`; True if it was the owner's last pattern, so that others have larger shares of the steps."""
        tree = self._trees.get(owner)
        if tree is None:
            return False
        tree.remove(pattern, receiver)
        if tree:
            return False
        del self._trees[owner]
        return True

    def collect(self, key: bytes, found: dict[R, int]) -> tuple[Hashable, ...]:
        """Add the receivers whose patterns match to ``found``; return the owners that ran out of steps."""
        share = max(LEAST_STEPS, MAX_STEPS // max(1, len(self._trees)))
        cut = []
        for owner, tree in self._trees.items():
            spent = self._spent.get(owner, 0)
            steps = min(share, FREE_STEPS + max(0, self._allowance - spent))
            left = tree.collect(key, found, steps)
            if left < 0:
                cut.append(owner)
            if steps - left > FREE_STEPS:
                self._spent[owner] = spent + steps - left - FREE_STEPS
        return tuple(cut)

    def has_spent(self, owner: Hashable) -> bool:
        """Whether an owner has used up its allowance."""
        return self._spent.get(owner, 0) >= self._allowance

    def forget(self, owner: Hashable) -> None:
        """Remove the account of an owner without patterns that does not come back."""
        self._spent.pop(owner, None)

    def refill(self) -> None:
        """Reset the allowances."""
        self._allowance = ALLOWANCE
        self._spent.clear()
