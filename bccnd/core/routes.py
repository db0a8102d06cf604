"""Patterns and identities -> receivers.

Law: a channel seen before costs one look-up, whatever the number of clients and patterns; a new one costs a walk
down a tree of tokens, whose width is the number of patterns that still match. What is remembered of channels is
capped, so that a flood of new names costs walks and never memory.

A receiver is any hashable object; the index does not look into it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

from bccnd.core import secret, targets
from bccnd.core.bccn1 import UNKNOWN_SRC, check_chan
from bccnd.core.frames import LINK, LINK_HERE, TAP
from bccnd.core.liveness import HEARTBEAT
from bccnd.core.patterns import DIALECTS, EXACT, MANY, Dialect, Pattern, compile_pattern
from bccnd.core.verdicts import NAMES
from bccnd.errors import BadDatagram
from bccnd.leaf.index import Index

#: channels remembered, in each of two generations: a few MB, and freeing one generation takes below a millisecond
CACHE: Final = 4096

R = TypeVar("R")


class Route:
    """Where messages of one channel go. ``frame_head`` is the frame up to the payload; ``plain`` and ``meta`` are
    the receivers without and with the sender's particulars; ``nobody`` marks a directed channel that names no one
    here; ``groups`` index the configured channel groups; ``heartbeat`` is the src whose heartbeats go this way, or
    empty; ``special`` is true where there is more to do than to send the frame to ``plain``. ``carried`` counts the
    messages that came this way since `Routes.carried` was asked."""

    __slots__ = ("carried", "frame_head", "groups", "heartbeat", "meta", "nobody", "plain", "special")

    def __init__(
        self, chan: bytes, form: int, plain: tuple[Any, ...], meta: tuple[Any, ...], groups: tuple[int, ...]
    ) -> None:
        self.carried = 0
        self.nobody = form == targets.DIRECTED and not plain and not meta
        self.frame_head = b"MSG %b\0" % chan
        self.plain = plain
        self.meta = meta
        self.groups = groups
        beats = chan.startswith(HEARTBEAT) and chan != HEARTBEAT + UNKNOWN_SRC
        self.heartbeat = chan[len(HEARTBEAT) :] if beats else b""
        self.special = bool(self.nobody or meta or groups or self.heartbeat)


class _Node(Generic[R]):
    """A place in the tree of tokens. ``ends`` and ``rests`` count the patterns per receiver that end here, or end
    here and take one or more further tokens; ``loops`` marks a node that takes any number of tokens."""

    __slots__ = ("ends", "exact", "loops", "many", "prefix", "rests")

    def __init__(self, loops: bool = False) -> None:
        self.exact: dict[bytes, _Node[R]] = {}
        self.prefix: dict[bytes, _Node[R]] = {}
        self.many: _Node[R] | None = None
        self.loops = loops
        self.ends: dict[R, int] = {}
        self.rests: dict[R, int] = {}

    def child(self, kind: int, token: bytes) -> _Node[R]:
        if kind == MANY:
            if self.many is None:
                self.many = _Node(loops=True)
            return self.many
        table = self.exact if kind == EXACT else self.prefix
        node = table.get(token)
        if node is None:
            node = table[token] = _Node()
        return node

    def drop(self, kind: int, token: bytes) -> None:
        if kind == MANY:
            self.many = None
        else:
            del (self.exact if kind == EXACT else self.prefix)[token]

    def empty(self) -> bool:
        return not (self.exact or self.prefix or self.many or self.ends or self.rests)


class PatternTree(Generic[R]):
    """Patterns with their receivers, matched all at once."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
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
            node = node.child(kind, token)
        holders = node.rests if pattern.rest else node.ends
        holders[receiver] = holders.get(receiver, 0) + 1

    def remove(self, pattern: Pattern, receiver: R) -> None:
        """Take back one `add` of the same pattern for the same receiver; nodes left empty go with it."""
        if pattern.steps is None:
            return
        path = [self._root]
        for kind, token in pattern.steps:
            path.append(path[-1].child(kind, token))
        holders = path[-1].rests if pattern.rest else path[-1].ends
        holders[receiver] -= 1
        if not holders[receiver]:
            del holders[receiver]
        for depth in range(len(pattern.steps), 0, -1):
            if not path[depth].empty():
                break
            path[depth - 1].drop(*pattern.steps[depth - 1])

    def match(self, key: bytes) -> dict[R, int]:
        """The receivers whose patterns match; each once, the values mean nothing."""
        found: dict[R, int] = {}
        states = self._with_loops([self._root])
        for token in self.dialect.tokens(key):
            following: list[_Node[R]] = []
            for node in states:
                found.update(node.rests)
                if node.loops:
                    following.append(node)
                child = node.exact.get(token)
                if child is not None:
                    following.append(child)
                if node.prefix:
                    following.extend(self._prefixed(node.prefix, token))
            if not following:
                return found
            states = self._with_loops(following)
        for node in states:
            found.update(node.ends)
        return found

    @staticmethod
    def _prefixed(table: dict[bytes, _Node[R]], token: bytes) -> Iterable[_Node[R]]:
        """The entries whose key the token begins with, by whichever way is shorter."""
        if len(table) <= len(token):
            return [node for prefix, node in table.items() if token.startswith(prefix)]
        return [table[token[:n]] for n in range(len(token) + 1) if token[:n] in table]

    def _with_loops(self, nodes: list[_Node[R]]) -> list[_Node[R]]:
        """Add the nodes reached without taking a token, each node once."""
        if not self.dialect.levels:
            return nodes
        reached: dict[int, _Node[R]] = {}
        for start in nodes:
            node: _Node[R] | None = start
            while node is not None and id(node) not in reached:
                reached[id(node)] = node
                node = node.many
        return list(reached.values())


class Routes(Generic[R]):
    """Who gets what: subscriptions for plain channels, everyone for the all form, identities for directed ones.

    Every receiver has its patterns in a dialect of its own; ``dialect`` is that of the channel groups, and of who
    names none. Keys of the bus itself (``!/...``) have trees of their own, which hold the patterns that begin in the
    same way: who subscribes to everything does not subscribe to the bus's own business, and nobody gets secret
    messages, the tap or what links get but by a pattern that asks for them. As these keys are written with ``/``,
    whatever the dialect, so are their patterns.

    Without ``forms`` there are no all and directed forms: ``!`` and ``!x`` are plain, as sbus has them.
    """

    def __init__(self, dialect: Dialect, cache: int = CACHE, *, forms: bool = True) -> None:
        self._cache_size = cache
        self._forms = forms
        self._dialect = dialect
        self._plain: dict[str, PatternTree[R]] = {}
        self._bus, self._secret, self._tap, self._link = (PatternTree[R](DIALECTS["path"]) for _ in range(4))
        self._identities: dict[R, bytes] = {}
        self._dialects: dict[R, Dialect] = {}
        self._by_prefix: dict[bytes, dict[R, None]] = {}
        self._meta: set[R] = set()
        self._held: dict[R, dict[bytes, int]] = {}
        self._groups: PatternTree[int] = PatternTree(dialect)
        #: receivers of the tap by the number of the verdict; empty when nobody listens
        self.taps: tuple[tuple[R, ...], ...] = ()
        #: receivers of what links have brought, and of what goes from here to other segments
        self.links: tuple[R, ...] = ()
        self.links_here: tuple[R, ...] = ()
        #: the younger generation of remembered routes, for who wants to look before asking `find`
        self.known = Index()
        self._old = Index()
        self._addressed: dict[bytes, Route] = {}
        #: the receivers of routes, while the younger generation lives
        self._same: dict[tuple[R, ...], tuple[R, ...]] = {}
        self.subscriptions = 0

    def __len__(self) -> int:
        return len(self._identities)

    # -- who is there

    def join(self, receiver: R, identity: bytes, dialect: Dialect | None = None) -> None:
        self._held[receiver] = {}
        self._dialects[receiver] = dialect or self._dialect
        self._plain.setdefault(self._dialects[receiver].name, PatternTree(self._dialects[receiver]))
        self._enter(receiver, identity)

    def rename(self, receiver: R, identity: bytes) -> None:
        """The receiver is called something else from now on."""
        self._strike(receiver)
        self._enter(receiver, identity)

    def _enter(self, receiver: R, identity: bytes) -> None:
        self._identities[receiver] = identity
        for prefix in targets.prefixes(identity):
            self._by_prefix.setdefault(prefix, {})[receiver] = None
        self._addressed = {}

    def _strike(self, receiver: R) -> None:
        for prefix in targets.prefixes(self._identities.pop(receiver)):
            holders = self._by_prefix[prefix]
            del holders[receiver]
            if not holders:
                del self._by_prefix[prefix]
        self._addressed = {}

    def leave(self, receiver: R) -> None:
        """Forget a receiver with all its patterns."""
        for text, count in list(self._held[receiver].items()):
            for _ in range(count):
                self.unsubscribe(receiver, text)
        del self._held[receiver], self._dialects[receiver]
        self._strike(receiver)
        self._meta.discard(receiver)

    def set_dialect(self, receiver: R, dialect: Dialect) -> None:
        """The dialect of the patterns to come, of a receiver that holds none."""
        self._dialects[receiver] = dialect
        self._plain.setdefault(dialect.name, PatternTree(dialect))

    def set_meta(self, receiver: R, wanted: bool) -> None:
        """Whether the receiver wants the sender's particulars before each bridged payload."""
        (self._meta.add if wanted else self._meta.discard)(receiver)
        self._forget()

    def wants_meta(self, receiver: R) -> bool:
        return receiver in self._meta

    # -- who wants what

    def subscribe(self, receiver: R, text: bytes) -> None:
        """Add a pattern; the same one may be added again and then counts twice."""
        tree = self._tree_of(receiver, text)
        pattern = tree.compile(text)
        tree.add(pattern, receiver)
        held = self._held[receiver]
        held[text] = held.get(text, 0) + 1
        self.subscriptions += 1
        self._changed(text, pattern)

    def unsubscribe(self, receiver: R, text: bytes) -> bool:
        """Take one pattern back; False when the receiver does not hold it."""
        held = self._held[receiver]
        if text not in held:
            return False
        tree = self._tree_of(receiver, text)
        pattern = tree.compile(text)
        tree.remove(pattern, receiver)
        held[text] -= 1
        if not held[text]:
            del held[text]
        self.subscriptions -= 1
        self._changed(text, pattern)
        return True

    def patterns(self, receiver: R) -> dict[bytes, int]:
        """The patterns that a receiver holds, with their counts."""
        return self._held[receiver]

    def set_groups(self, patterns: Iterable[bytes]) -> None:
        """The configured channel groups: routes name those that a channel belongs to, by position."""
        self._groups = PatternTree(self._dialect)
        for number, text in enumerate(patterns):
            self._groups.add(self._groups.compile(text), number)
        self._forget()

    # -- where to

    def find(self, chan: bytes) -> Route:
        """The route of a channel. Raises BadDatagram: bad_channel, bad_target."""
        route: Route | None = self.known.get(chan)
        if route is None:
            if chan.startswith(b"!"):
                return self._find_addressed(chan)
            route = self._old.get(chan)
            if route is None:
                check_chan(chan)
                route = self._make(chan, targets.PLAIN, self._match(chan))
            if len(self.known) >= self._cache_size:
                self._old, self.known, self._same = self.known, Index(), {}
            self.known.put(chan, route)
        return route

    def _find_addressed(self, chan: bytes) -> Route:
        """The all and directed forms; kept apart, because they change with every client that comes or goes."""
        if not self._forms:
            raise BadDatagram("bad_channel", "no legal channel where there are no forms")
        route = self._addressed.get(chan)
        if route is None:
            check_chan(chan)
            if chan == b"!":
                route = self._make(chan, targets.ALL, self._identities)
            else:
                route = self._make(chan, targets.DIRECTED, self._holders(targets.target_of(chan)))
            if len(self._addressed) >= self._cache_size:
                self._addressed = {}
            self._addressed[chan] = route
        return route

    def _make(self, chan: bytes, form: int, found: Iterable[R]) -> Route:
        plain = tuple(found)
        meta: tuple[R, ...] = ()
        if self._meta:
            meta = tuple([receiver for receiver in plain if receiver in self._meta])
            plain = tuple([receiver for receiver in plain if receiver not in self._meta])
        # Channels whose messages go to the same receivers say so with the same tuple.
        plain = self._same.setdefault(plain, plain)
        return Route(chan, form, plain, meta, tuple(self._groups.match(chan)) if self._groups else ())

    def _holders(self, target: bytes) -> Iterable[R]:
        exact, value = targets.classify(target)
        holders = self._by_prefix.get(value, {})
        if not exact:
            return holders
        return [receiver for receiver in holders if self._identities[receiver] == value]

    def local(self, key: bytes) -> tuple[R, ...]:
        """The receivers of a key that is no legal channel and so stays on this host; never remembered.

        A directed key that is no legal channel names nobody.
        """
        if key.startswith(secret.PREFIX):
            return tuple(self._secret.match(key))
        if key.startswith(b"!/"):
            return tuple(self._bus.match(key))
        return () if self._forms and key.startswith(b"!") else tuple(self._match(key))

    def _match(self, key: bytes) -> dict[R, int]:
        found: dict[R, int] = {}
        for tree in self._plain.values():
            found.update(tree.match(key))
        return found

    def carried(self) -> list[tuple[bytes, int, int]]:
        """Of each channel that is remembered and has carried messages since this was asked last: its name, how many,
        and how many receivers it has. What was forgotten meanwhile is not in it."""
        found = []
        for routes in (self.known.values(0), self._old.values(0), self._addressed.values()):
            for route in routes:
                if route.carried:
                    found.append((route.frame_head[4:-1], route.carried, len(route.plain) + len(route.meta)))
                    route.carried = 0
        return found

    # -- what was remembered

    def _tree_of(self, receiver: R, text: bytes) -> PatternTree[R]:
        if not text.startswith(b"!" if self._forms else b"!/"):
            return self._plain[self._dialects[receiver].name]
        if text.startswith(secret.PREFIX):
            return self._secret
        if text in (LINK, LINK_HERE):
            return self._link
        return self._tap if text.startswith(TAP) else self._bus

    def _changed(self, text: bytes, pattern: Pattern) -> None:
        if text in (LINK, LINK_HERE):
            self.links = tuple(self._link.match(LINK))
            self.links_here = tuple(self._link.match(LINK_HERE))
        elif text.startswith(b"!/") and not text.startswith(TAP):
            return  # such keys are looked up each time
        elif text.startswith(TAP):
            listening = tuple(tuple(self._tap.match(TAP + name.encode())) for name in NAMES)
            self.taps = listening if any(listening) else ()
        elif pattern.literal:
            self.known.pop(text)
            self._old.pop(text)
        else:
            self.known, self._old, self._same = Index(), Index(), {}

    def _forget(self) -> None:
        self.known, self._old, self._addressed, self._same = Index(), Index(), {}, {}
