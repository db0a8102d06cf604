"""Patterns and identities -> receivers.

A channel seen before costs one look-up, whatever the number of clients and patterns; a new one costs a walk down a
tree of tokens for each owner of patterns, each of a bounded number of steps. What is remembered of channels is
capped, so that a flood of new names costs walks and no memory.

A receiver is any hashable object; the index does not look into it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from bccnd.core import credential_keys, targets
from bccnd.core.bccn1 import UNKNOWN_SRC, check_chan
from bccnd.core.frames import LINK, LINK_HERE, TAP
from bccnd.core.liveness import HEARTBEAT
from bccnd.core.pattern_tree import PatternTree, TreesByOwner
from bccnd.core.patterns import DIALECTS, Dialect, Pattern, compile_pattern
from bccnd.core.verdicts import NAMES
from bccnd.errors import BadDatagram
from bccnd.native.slice_dict import Index

#: channels remembered, in each of two generations: a few MB, and freeing one generation takes below a millisecond
CACHE: Final = 4096

#: estimated bytes of a subscription beside its text and what the trees hold of it
SUBSCRIPTION_BYTES: Final = 192

R = TypeVar("R", bound=Hashable)


class Route:
    """Where messages of one channel go. ``frame_head`` is the frame up to the payload; ``plain`` and ``meta`` are
    the receivers without and with the sender's particulars; ``nobody`` marks a directed channel that names no one
    here; ``groups`` index the configured channel groups; ``heartbeat`` is the src whose heartbeats go this way, or
    empty; ``cut`` are the owners of receivers that may be missing; ``special`` is true where there is more to do than
    to send the frame to ``plain``. ``carried`` counts the messages that came this way since `Routes.carried` was
    asked."""

    __slots__ = ("carried", "cut", "frame_head", "groups", "heartbeat", "meta", "nobody", "plain", "special")

    def __init__(
        self,
        chan: bytes,
        form: int,
        plain: tuple[Any, ...],
        meta: tuple[Any, ...],
        groups: tuple[int, ...],
        cut: tuple[Any, ...] = (),
    ) -> None:
        self.carried = 0
        self.cut = cut
        self.nobody = form == targets.DIRECTED and not plain and not meta
        self.frame_head = b"MSG %b\0" % chan
        self.plain = plain
        self.meta = meta
        self.groups = groups
        beats = chan.startswith(HEARTBEAT) and chan != HEARTBEAT + UNKNOWN_SRC
        self.heartbeat = chan[len(HEARTBEAT) :] if beats else b""
        self.special = bool(self.nobody or meta or groups or self.heartbeat or cut)


class Routes(Generic[R]):
    """Who gets what: subscriptions for plain channels, everyone for the all form, identities for directed ones.

    Every receiver has its patterns in a dialect of its own; ``dialect`` is that of the channel groups, and of who
    names none. Keys of the bus itself (``!/...``) have trees of their own, which hold the patterns that begin in the
    same way: who subscribes to everything does not subscribe to the bus's own business, and nobody gets secret
    messages, the tap or what links get but by a pattern that asks for them. As these keys are written with ``/``,
    whatever the dialect, so are their patterns.

    Receivers may have an owner in common (a user): the steps of a look-up are shared out among owners. ``on_cut`` is
    called for each message that some receivers of some owners may have missed, because their patterns took more steps
    than their share, with its channel or key and these owners.

    Without ``forms`` there are no all and directed forms: ``!`` and ``!x`` are plain, as sbus has them.
    """

    def __init__(self, dialect: Dialect, cache: int = CACHE, *, forms: bool = True) -> None:
        self._cache_size = cache
        self._forms = forms
        self._dialect = dialect
        self.on_cut: Callable[[bytes, tuple[Hashable, ...]], None] = lambda _key, _owners: None
        self._plain: dict[str, TreesByOwner[R]] = {}
        self._bus, self._secret, self._tap, self._link = (TreesByOwner[R](DIALECTS["path"]) for _ in range(4))
        self._owners: dict[R, Hashable] = {}
        #: estimated bytes that the texts of patterns take up, by owner
        self._texts: dict[Hashable, int] = {}
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

    def join(self, receiver: R, identity: bytes, dialect: Dialect | None = None, owner: Hashable = None) -> None:
        self._held[receiver] = {}
        self._owners[receiver] = owner
        self.set_dialect(receiver, dialect or self._dialect)
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
        self.retire(receiver)
        self.forget_some(receiver, len(self._held[receiver]))

    def retire(self, receiver: R) -> None:
        """A receiver is not addressed any more; what it holds goes by `forget_some`."""
        self._strike(receiver)
        self._meta.discard(receiver)

    def forget_some(self, receiver: R, most: int) -> bool:
        """Forget up to so many patterns of one that was retired; True when nothing is left of it."""
        held = self._held[receiver]
        for text in list(islice(held, most)):
            for _ in range(held[text]):
                self.unsubscribe(receiver, text)
        if held:
            return False
        del self._held[receiver], self._dialects[receiver], self._owners[receiver]
        return True

    def set_dialect(self, receiver: R, dialect: Dialect) -> None:
        """The dialect of the patterns to come, of a receiver that holds none."""
        self._dialects[receiver] = dialect
        self._plain.setdefault(dialect.name, TreesByOwner(dialect))

    def set_meta(self, receiver: R, wanted: bool) -> None:
        """Whether the receiver wants the sender's particulars before each bridged payload."""
        (self._meta.add if wanted else self._meta.discard)(receiver)
        self._forget()

    def wants_meta(self, receiver: R) -> bool:
        return receiver in self._meta

    # -- who wants what

    def subscribe(self, receiver: R, text: bytes) -> None:
        """Add a pattern; the same one may be added again and then counts twice."""
        trees, owner = self._trees_of(receiver, text), self._owners[receiver]
        pattern = compile_pattern(text, trees.dialect)
        trees.add(owner, pattern, receiver)
        held = self._held[receiver]
        if text not in held:
            self._texts[owner] = self._texts.get(owner, 0) + SUBSCRIPTION_BYTES + len(text)
        held[text] = held.get(text, 0) + 1
        self.subscriptions += 1
        self._changed(text, pattern)

    def unsubscribe(self, receiver: R, text: bytes) -> bool:
        """Take one pattern back; False when the receiver does not hold it."""
        held = self._held[receiver]
        if text not in held:
            return False
        trees, owner = self._trees_of(receiver, text), self._owners[receiver]
        pattern = compile_pattern(text, trees.dialect)
        trees.remove(owner, pattern, receiver)
        held[text] -= 1
        if not held[text]:
            del held[text]
            self._texts[owner] -= SUBSCRIPTION_BYTES + len(text)
            if not self._texts[owner]:
                del self._texts[owner]
        self.subscriptions -= 1
        self._changed(text, pattern)
        return True

    def patterns(self, receiver: R) -> dict[bytes, int]:
        """The patterns that a receiver holds, with their counts."""
        return self._held[receiver]

    def bytes_of(self, owner: Hashable) -> int:
        """What the patterns of an owner's receivers take up, estimated; within a factor of two."""
        trees = (*self._plain.values(), self._bus, self._secret, self._tap, self._link)
        return self._texts.get(owner, 0) + sum(one.bytes_of(owner) for one in trees)

    def levels_of(self, receiver: R, text: bytes) -> int:
        """How many levels a pattern of a receiver has."""
        return self._trees_of(receiver, text).dialect.levels_of(text)

    def refill(self) -> None:
        """To be called every `REFILL` seconds where owners are not trusted: their costly look-ups then take a bounded
        share of the time."""
        for trees in (*self._plain.values(), self._bus, self._secret):
            trees.refill()

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
                found: dict[R, int] = {}
                cut = self._match(chan, found)
                route = self._make(chan, targets.PLAIN, found, cut)
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

    def _make(self, chan: bytes, form: int, found: Iterable[R], cut: tuple[Hashable, ...] = ()) -> Route:
        plain = tuple(found)
        meta: tuple[R, ...] = ()
        if self._meta:
            meta = tuple([receiver for receiver in plain if receiver in self._meta])
            plain = tuple([receiver for receiver in plain if receiver not in self._meta])
        # Channels whose messages go to the same receivers say so with the same tuple.
        plain = self._same.setdefault(plain, plain)
        return Route(chan, form, plain, meta, tuple(self._groups.match(chan)) if self._groups else (), cut)

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
        found: dict[R, int] = {}
        cut: tuple[Hashable, ...] = ()
        if key.startswith(credential_keys.PREFIX):
            cut = self._secret.collect(key, found)
        elif key.startswith(b"!/"):
            cut = self._bus.collect(key, found)
        elif not (self._forms and key.startswith(b"!")):
            cut = self._match(key, found)
        if cut:
            self.on_cut(key, cut)
        return tuple(found)

    def report_cut(self, route: Route) -> None:
        """A message has gone this way, which may have missed some receivers."""
        self.on_cut(route.frame_head[4:-1], route.cut)

    def _match(self, key: bytes, found: dict[R, int]) -> tuple[Hashable, ...]:
        cut: tuple[Hashable, ...] = ()
        for trees in self._plain.values():
            cut += trees.collect(key, found)
        return cut

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

    def _trees_of(self, receiver: R, text: bytes) -> TreesByOwner[R]:
        if not text.startswith(b"!" if self._forms else b"!/"):
            return self._plain[self._dialects[receiver].name]
        if text.startswith(credential_keys.PREFIX):
            return self._secret
        if text in (LINK, LINK_HERE):
            return self._link
        return self._tap if text.startswith(TAP) else self._bus

    def _changed(self, text: bytes, pattern: Pattern) -> None:
        if text in (LINK, LINK_HERE):
            self.links = self._found(self._link, LINK)
            self.links_here = self._found(self._link, LINK_HERE)
        elif text.startswith(b"!/") and not text.startswith(TAP):
            return  # such keys are looked up each time
        elif text.startswith(TAP):
            listening = tuple(self._found(self._tap, TAP + name.encode()) for name in NAMES)
            self.taps = listening if any(listening) else ()
        elif pattern.literal:
            self.known.pop(text)
            self._old.pop(text)
        else:
            self.known, self._old, self._same = Index(), Index(), {}

    @staticmethod
    def _found(trees: TreesByOwner[R], key: bytes) -> tuple[R, ...]:
        found: dict[R, int] = {}
        trees.collect(key, found)
        return tuple(found)

    def _forget(self) -> None:
        self.known, self._old, self._addressed, self._same = Index(), Index(), {}, {}
