"""Routes channels to receivers by patterns and identities.

A known channel costs one look-up, whatever the number of clients and patterns; a new one costs a walk of the pattern
trees, whose steps the wildcards of all owners bound. The cache is capped, so that a flood of new names takes no memory.

A receiver is any hashable object.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from bccnd.core.matching import credential_keys
from bccnd.core.matching.pattern_charges import PatternCharges
from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.patterns import DIALECTS, Dialect, Pattern, compile_pattern
from bccnd.core.matching.receivers import NO_RECEIVERS, Receivers
from bccnd.core.wire import directed_targets
from bccnd.core.wire.bccn1 import HEARTBEAT, UNKNOWN_SRC, check_chan
from bccnd.core.wire.frames import LINK, LINK_HERE, REPORT, TAP
from bccnd.core.wire.verdicts import NAMES
from bccnd.errors import BadDatagram
from bccnd.native.buffers.dict_by_slice import Index

#: cached channels in each of two generations: a few MB; freeing one takes less than a millisecond
CACHE: Final = 4096
#: receivers in the routes of each generation, those that routes share counted once: 4 MB, and three times that where
#: each of them is a group by itself
RECEIVERS: Final = 1 << 19
R = TypeVar("R", bound=Hashable)


class Route:
    """The receivers of one channel. ``frame_head`` is the frame up to the payload; ``plain`` and ``meta`` are the
    receivers without and with metadata; ``unaddressed`` marks a directed channel that matches no local client;
    ``groups`` index the configured channel groups; ``heartbeat`` is the src of a heartbeat channel, or empty;
    ``report`` marks a channel of reports; ``special`` is true if anything but sending to ``plain`` is needed.
    ``carried`` counts the messages since the last `Routes.carried`. ``permitted`` is the rule that last allowed a
    client to publish on the channel, or False: a cache of access decisions."""

    __slots__ = (
        *("carried", "frame_head", "groups", "heartbeat", "meta", "permitted", "plain", "report"),
        *("special", "unaddressed"),
    )

    def __init__(self, chan: bytes, form: int, plain: Receivers, meta: Receivers, groups: tuple[int, ...]) -> None:
        self.carried = 0
        self.permitted: object = False
        self.unaddressed = form == directed_targets.DIRECTED and not plain.all and not meta.all
        self.frame_head = b"MSG %b\0" % chan
        self.plain = plain
        self.meta = meta
        self.groups = groups
        beats = chan.startswith(HEARTBEAT) and chan != HEARTBEAT + UNKNOWN_SRC
        self.heartbeat = chan[len(HEARTBEAT) :] if beats else b""
        self.report = chan.startswith(REPORT)
        self.special = bool(self.unaddressed or meta.all or groups or self.heartbeat or self.report)


#: stands for no route
NO_ROUTE: Final = Route(b"", directed_targets.PLAIN, NO_RECEIVERS, NO_RECEIVERS, ())


class RouteTables:
    """The part of `Routes` that is read for each datagram."""

    def __init__(self) -> None:
        #: receivers of the tap by the number of the verdict; empty if there are none
        self.taps: tuple[Receivers, ...] = ()
        #: receivers of all forwarded datagrams, and of those that did not come from a link
        self.links = self.links_here = NO_RECEIVERS
        #: the younger generation of cached routes; callers may look here before calling `find`
        self.known = Index()


class Routes(RouteTables, Generic[R]):
    """Finds receivers: by subscription for plain channels, all for the all form, by identity for directed channels.

    Each receiver's patterns have its own dialect; ``dialect`` is the default, and that of the channel groups. Keys of
    the bus itself (``!/...``) have separate trees with the patterns that begin alike, always separated by ``/``: the
    empty pattern does not match them, and secret messages, the tap and link messages need explicit patterns.

    Receivers may share an owner (a user): memory and wildcards of their patterns are charged to it.

    Without ``forms``, ``!`` and ``!x`` are plain channels, as in sbus.
    """

    def __init__(self, dialect: Dialect, cache: int = CACHE, *, forms: bool = True) -> None:
        super().__init__()
        self._cache_size = cache
        self._forms = forms
        self._dialect = dialect
        #: by separator
        self._plain: dict[bytes, PatternTree[R]] = {}
        self._bus, self._secret, self._tap, self._link = (PatternTree[R](DIALECTS["path"]) for _ in range(4))
        self._owners: dict[R, Hashable] = {}
        #: of owners with patterns
        self._charges: dict[Hashable, PatternCharges] = {}
        self._identities: dict[R, bytes] = {}
        self._dialects: dict[R, Dialect] = {}
        self._by_prefix: dict[bytes, dict[R, None]] = {}
        self._meta: set[R] = set()
        self._patterns: dict[R, dict[bytes, int]] = {}
        self._groups: PatternTree[int] = PatternTree(dialect)
        self._old = Index()
        self._addressed: dict[bytes, Route] = {}
        #: receivers of routes, by all of them; gone with the last route that has them
        self._shared: WeakValueDictionary[tuple[R, ...], Receivers] = WeakValueDictionary()
        #: number of the younger generation, and of the receivers that it has
        self._generation = self._held = 0
        self.subscriptions = 0

    def __len__(self) -> int:
        return len(self._identities)

    # -- receivers

    def join(self, receiver: R, identity: bytes, dialect: Dialect | None = None, owner: Hashable = None) -> None:
        self._patterns[receiver] = {}
        self._owners[receiver] = owner
        self.set_dialect(receiver, dialect or self._dialect)
        self._add_identity(receiver, identity)

    def rename(self, receiver: R, identity: bytes) -> None:
        """Change a receiver's identity."""
        self._remove_identity(receiver)
        self._add_identity(receiver, identity)

    def _add_identity(self, receiver: R, identity: bytes) -> None:
        self._identities[receiver] = identity
        for prefix in directed_targets.prefixes(identity):
            self._by_prefix.setdefault(prefix, {})[receiver] = None
        self._addressed = {}

    def _remove_identity(self, receiver: R) -> None:
        for prefix in directed_targets.prefixes(self._identities.pop(receiver)):
            holders = self._by_prefix[prefix]
            del holders[receiver]
            if not holders:
                del self._by_prefix[prefix]
        self._addressed = {}

    def leave(self, receiver: R) -> None:
        """Remove a receiver with all its patterns."""
        self.retire(receiver)
        self.forget_some(receiver, len(self._patterns[receiver]))

    def retire(self, receiver: R) -> None:
        """Remove a receiver's identity; `forget_some` removes its patterns."""
        self._remove_identity(receiver)
        self._meta.discard(receiver)

    def present(self, receivers: Iterable[R]) -> tuple[R, ...]:
        """Leave out those receivers that are retired: routes name them until their patterns are removed."""
        return tuple([receiver for receiver in receivers if receiver in self._identities])

    def forget_some(self, receiver: R, most: int) -> bool:
        """Remove up to ``most`` patterns of a retired receiver; True when none are left."""
        held = self._patterns[receiver]
        for text in list(islice(held, most)):
            for _ in range(held[text]):
                self.unsubscribe(receiver, text)
        if held:
            return False
        del self._patterns[receiver], self._dialects[receiver], self._owners[receiver]
        return True

    def set_dialect(self, receiver: R, dialect: Dialect) -> None:
        """Set the dialect of a receiver that has no patterns."""
        self._dialects[receiver] = dialect
        self._plain.setdefault(dialect.separator, PatternTree(dialect))

    def set_meta(self, receiver: R, wanted: bool) -> None:
        """Set whether a receiver gets metadata before each bridged payload."""
        (self._meta.add if wanted else self._meta.discard)(receiver)
        self._forget()

    def wants_meta(self, receiver: R) -> bool:
        return receiver in self._meta

    # -- patterns

    def subscribe(self, receiver: R, text: bytes) -> None:
        """Add a pattern; the same one may be added several times."""
        pattern = self._compile(receiver, text)
        self._tree_of(receiver, text).add(pattern, receiver)
        held = self._patterns[receiver]
        if text not in held:
            self._charges.setdefault(self._owners[receiver], PatternCharges()).add(pattern)
        held[text] = held.get(text, 0) + 1
        self.subscriptions += 1
        self._changed(text, pattern)

    def unsubscribe(self, receiver: R, text: bytes) -> bool:
        """Remove a pattern once; False if the receiver does not have it."""
        held, owner = self._patterns[receiver], self._owners[receiver]
        if text not in held:
            return False
        pattern = self._compile(receiver, text)
        self._tree_of(receiver, text).remove(pattern, receiver)
        held[text] -= 1
        if not held[text]:
            del held[text]
            self._charges[owner].remove(pattern)
            if not self._charges[owner].bytes:
                del self._charges[owner]
        self.subscriptions -= 1
        self._changed(text, pattern)
        return True

    def patterns(self, receiver: R) -> dict[bytes, int]:
        """Return a receiver's patterns with their counts."""
        return self._patterns[receiver]

    def bytes_of(self, owner: Hashable) -> int:
        """Return the estimated bytes of an owner's patterns."""
        charges = self._charges.get(owner)
        return 0 if charges is None else charges.bytes

    def has_room(self, receiver: R, texts: Iterable[bytes], wildcards: int) -> bool:
        """Whether the owner of a receiver would have at most so many wildcard places with these patterns, or no more
        than it has."""
        charges = self._charges.get(self._owners[receiver]) or PatternCharges()
        return charges.has_room([self._compile(receiver, text) for text in texts], wildcards)

    def levels_of(self, receiver: R, text: bytes) -> int:
        """Return the number of levels of a pattern."""
        return self._dialect_of(receiver, text).levels_of(text)

    def set_groups(self, patterns: Iterable[bytes]) -> None:
        """Set the channel groups; routes name those of a channel by position."""
        self._groups = PatternTree(self._dialect)
        for number, text in enumerate(patterns):
            self._groups.add(self._groups.compile(text), number)
        self._forget()

    # -- look-up

    def find(self, chan: bytes) -> Route:
        """Return the route of a channel. Raises BadDatagram: bad_channel, bad_target."""
        route: Route | None = self.known.get(chan)
        if route is None:
            if chan.startswith(b"!"):
                return self._find_addressed(chan)
            old: Route | None = self._old.pop(chan)
            if old is None:
                check_chan(chan)
            if len(self.known) >= self._cache_size or self._held > RECEIVERS:
                self._old = self.known
                self._begin_generation()
            route = self._make_plain(chan, old)
            self.known.put(chan, route)
        return route

    def _make_plain(self, chan: bytes, old: Route | None) -> Route:
        """Return the route of a plain channel for the younger generation; ``old`` is that of the older one."""
        route = self._make(chan, directed_targets.PLAIN, self._match(chan)) if old is None else old
        for receivers in (route.plain, route.meta):
            if receivers.generation != self._generation:
                receivers.generation = self._generation
                self._held += len(receivers.all)
        return route

    def _find_addressed(self, chan: bytes) -> Route:
        """Route the all and directed forms, which have a cache of their own: each client that joins or leaves clears
        it."""
        if not self._forms:
            raise BadDatagram("bad_channel", "all and directed forms are disabled")
        route = self._addressed.get(chan)
        if route is None:
            check_chan(chan)
            if chan == b"!":
                route = self._make(chan, directed_targets.ALL, self._identities)
            else:
                route = self._make(chan, directed_targets.DIRECTED, self._addressees(directed_targets.target_of(chan)))
            if len(self._addressed) >= self._cache_size:
                self._addressed = {}
            self._addressed[chan] = route
        return route

    def _make(self, chan: bytes, form: int, found: Iterable[R]) -> Route:
        """Return a route to these receivers."""
        plain: tuple[R, ...] = tuple(found)
        meta: tuple[R, ...] = ()
        if self._meta:
            meta = tuple([receiver for receiver in plain if receiver in self._meta])
            plain = tuple([receiver for receiver in plain if receiver not in self._meta])
        groups = tuple(self._groups.match(chan)) if self._groups else ()
        return Route(chan, form, self._share(plain), self._share(meta), groups)

    def _share(self, receivers: tuple[R, ...]) -> Receivers:
        """Return the `Receivers` that all routes to these receivers share."""
        shared = self._shared.get(receivers) if receivers else NO_RECEIVERS
        if shared is None:
            shared = self._shared[receivers] = Receivers(receivers)
        return shared

    def _addressees(self, target: bytes) -> Iterable[R]:
        exact, value = directed_targets.classify(target)
        holders = self._by_prefix.get(value, {})
        if not exact:
            return holders
        return [receiver for receiver in holders if self._identities[receiver] == value]

    def local(self, key: bytes) -> Receivers:
        """Return the receivers of a key that is no legal channel and so stays on this host; never cached.

        An illegal directed key has no receivers.
        """
        found: dict[R, int] = {}
        if key.startswith(credential_keys.PREFIX):
            found = self._secret.match(key)
        elif key.startswith(b"!/"):
            found = self._bus.match(key)
        elif not (self._forms and key.startswith(b"!")):
            found = self._match(key)
        return Receivers(tuple(found))

    def _match(self, key: bytes) -> dict[R, int]:
        found: dict[R, int] = {}
        for tree in self._plain.values():
            tree.collect(key, found)
        return found

    def carried(self) -> list[tuple[bytes, int, int]]:
        """Return the cached channels that carried messages since the last call: name, messages, receivers."""
        found = []
        for routes in (self.known.values(0), self._old.values(0), self._addressed.values()):
            for route in routes:
                if route.carried:
                    found.append((route.frame_head[4:-1], route.carried, len(route.plain.all) + len(route.meta.all)))
                    route.carried = 0
        return found

    # -- cache

    def _is_plain(self, text: bytes) -> bool:
        return not text.startswith(b"!" if self._forms else b"!/")

    def _dialect_of(self, receiver: R, text: bytes) -> Dialect:
        return self._dialects[receiver] if self._is_plain(text) else DIALECTS["path"]

    def _compile(self, receiver: R, text: bytes) -> Pattern:
        return compile_pattern(text, self._dialect_of(receiver, text))

    def _tree_of(self, receiver: R, text: bytes) -> PatternTree[R]:
        if self._is_plain(text):
            return self._plain[self._dialects[receiver].separator]
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
            return  # not cached
        elif text.startswith(TAP):
            listening = tuple(self._found(self._tap, TAP + name.encode()) for name in NAMES)
            self.taps = listening if any(one.all for one in listening) else ()
        elif pattern.literal:
            for routes in (self.known, self._old):
                routes.pop(text)
        else:
            self._drop_all()

    def _drop_all(self) -> None:
        """Drop the cached routes of all plain channels."""
        self._old = Index()
        self._begin_generation()

    def _begin_generation(self) -> None:
        self.known, self._held = Index(), 0
        self._generation += 1

    def _found(self, tree: PatternTree[R], key: bytes) -> Receivers:
        return self._share(tuple(tree.match(key)))

    def _forget(self) -> None:
        self._addressed = {}
        self._drop_all()
