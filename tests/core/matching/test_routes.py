"""Routes: after any sequence of operations, a channel goes to just those receivers that the naive matcher finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bccnd.core.matching.credential_keys import PREFIX as SECRET
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.matching.routes import Route, Routes
from bccnd.core.wire import bccn1, directed_targets
from bccnd.core.wire.frames import TAP
from bccnd.core.wire.verdicts import NAMES
from bccnd.errors import BadDatagram
from tests.core import naive
from tests.core.material import examples, reason_of

RECEIVERS = range(4)
IDENTITIES = [b"h/a/1", b"h/a/1/2", b"h/a/2", b"h/b/1", b"h2/a/1", b"h/a/1"]
CHANNELS = [
    *(b"!", b"!h", b"!h/a", b"!h/a/1", b"!h/a/1/*", b"!h/*", b"!h2", b"!1", b"!h/", b"!*", b"!nobody", b"!h/a/1/2")
]
#: what patterns of the bus begin with; each of the last two has a tree of its own
BUS, TREES = b"!/", (b"!/", SECRET, TAP)
#: ends of patterns for the tap
TAPPED = [b"", b"*", b">", b"accepted", b"duplicate", b"bad_*", b"bad_src", b"accepted/", b"*/", b"nonsense", b"a*b"]
REFUSED = [b"!/", b"!/a", b"!?", b"!?a", b"", b"a b", b"a:b", b"a|b", b"x" * 1025, b"caf\xc3\xa9", b"a\n"]


class RoutesMachine(RuleBasedStateMachine):
    """The routes beside a list of all subscriptions. After every step all channels of a small pool are looked up, so
    that each of them is cached before the next step."""

    def __init__(self) -> None:
        super().__init__()
        self.dialect = ""
        self.forms = True
        self.cache = 0
        self.pool: list[bytes] = []
        self.routes: Routes[int] = Routes(DIALECTS["path"])
        self.identities: dict[int, bytes] = {}
        self.dialects: dict[int, str] = {}
        self.held: Counter[tuple[int, bytes]] = Counter()
        self.meta: set[int] = set()
        self.groups: list[bytes] = []

    @initialize(
        dialect=st.sampled_from(naive.DIALECT_NAMES),
        forms=st.sampled_from([True, True, True, False]),
        cache=st.sampled_from([1, 2, 3, 100]),
        data=st.data(),
    )
    def begin(self, dialect: str, forms: bool, cache: int, data: st.DataObject) -> None:
        self.dialect = dialect
        self.forms = forms
        self.cache = cache
        keys = st.one_of(naive.keys(dialect), naive.keys("sbus-dot")).filter(bool)
        self.pool = [b"c" * bccn1.MAX_CHAN, *data.draw(st.lists(keys, min_size=3, max_size=6))]
        self.routes = Routes(DIALECTS[dialect], cache, forms=forms)
        self.join(0, IDENTITIES[0], None)
        self.join(1, IDENTITIES[1], data.draw(st.sampled_from(naive.DIALECT_NAMES)))

    def texts(self, dialect: str) -> st.SearchStrategy[bytes]:
        """Patterns of all kinds, and some that are the very text of a channel of the pool."""
        return st.one_of(naive.patterns(dialect), naive.patterns(dialect), st.sampled_from(self.pool))

    def someone(self) -> st.SearchStrategy[int]:
        return st.sampled_from(sorted(self.identities))

    # -- what clients do

    @rule(
        receiver=st.sampled_from(RECEIVERS),
        identity=st.sampled_from(IDENTITIES),
        dialect=st.sampled_from([None, *naive.DIALECT_NAMES]),
    )
    def join(self, receiver: int, identity: bytes, dialect: str | None) -> None:
        if receiver not in self.identities:
            self.routes.join(receiver, identity, DIALECTS[dialect] if dialect else None)
            self.identities[receiver] = identity
            self.dialects[receiver] = dialect or self.dialect

    @rule(data=st.data(), identity=st.sampled_from(IDENTITIES))
    def rename(self, data: st.DataObject, identity: bytes) -> None:
        receiver = data.draw(self.someone())
        self.routes.rename(receiver, identity)
        self.identities[receiver] = identity

    @precondition(lambda self: len(self.identities) > 1)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.part(data.draw(self.someone()))

    def part(self, receiver: int) -> None:
        self.routes.leave(receiver)
        del self.identities[receiver], self.dialects[receiver]
        self.meta.discard(receiver)
        self.held = Counter({(who, text): count for (who, text), count in self.held.items() if who != receiver})

    @rule(data=st.data(), times=st.sampled_from([1, 1, 2, 3]), tree=st.sampled_from([b"", b"", b"", b"", *TREES]))
    def subscribe(self, data: st.DataObject, times: int, tree: bytes) -> None:
        receiver = data.draw(self.someone())
        if tree:
            text = tree + data.draw(st.sampled_from(TAPPED) if tree == TAP else naive.patterns("path"))
        else:
            text = data.draw(self.texts(self.dialects[receiver]))
        for _ in range(times):
            self.routes.subscribe(receiver, text)
            self.held[receiver, text] += 1

    @precondition(lambda self: +self.held)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        receiver, text = data.draw(st.sampled_from(sorted(+self.held)))
        assert self.routes.unsubscribe(receiver, text) is True
        self.held[receiver, text] -= 1

    @rule(data=st.data())
    def unsubscribe_what_may_not_be_held(self, data: st.DataObject) -> None:
        receiver = data.draw(self.someone())
        text = data.draw(self.texts(self.dialects[receiver]))
        held = self.held[receiver, text] > 0
        assert self.routes.unsubscribe(receiver, text) is held
        self.held[receiver, text] -= held

    @rule(data=st.data(), wanted=st.sampled_from([True, True, False]))
    def set_meta(self, data: st.DataObject, wanted: bool) -> None:
        receiver = data.draw(self.someone())
        self.routes.set_meta(receiver, wanted)
        (self.meta.add if wanted else self.meta.discard)(receiver)

    @rule(data=st.data())
    def set_groups(self, data: st.DataObject) -> None:
        self.groups = data.draw(st.lists(self.texts(self.dialect), max_size=2))
        self.routes.set_groups(self.groups)

    # -- what must hold

    def begins(self, text: bytes) -> bytes:
        """The kind of a key or pattern: patterns take only keys of their kind."""
        if text.startswith((SECRET, TAP)):
            return SECRET if text.startswith(SECRET) else TAP
        return BUS if text.startswith(b"!" if self.forms else BUS) else b""

    def takers(self, key: bytes) -> set[int]:
        """The receivers that a pattern gives a key."""
        begins = self.begins(key)
        return {
            receiver
            for (receiver, text), count in self.held.items()
            if count
            and self.begins(text) == begins
            # Keys of the bus are written with slashes, whatever the channels are written with.
            and naive.matches("path" if begins else self.dialects[receiver], text, key)
        }

    def agrees(self, chan: bytes, route: Route, expected: set[int], *, unaddressed: bool = False) -> None:
        groups = {n for n, text in enumerate(self.groups) if naive.matches(self.dialect, text, chan)}
        assert sorted(route.plain.all) == sorted(expected - self.meta)
        assert sorted(route.meta.all) == sorted(expected & self.meta)
        assert route.frame_head == b"MSG " + chan + b"\0"
        assert route.unaddressed == unaddressed
        assert route.special == bool(unaddressed or expected & self.meta or groups or route.heartbeat)
        assert set(route.groups) == groups
        assert len(route.groups) == len(groups)

    @rule(data=st.data())
    def find_another_channel(self, data: st.DataObject) -> None:
        chan = data.draw(st.one_of(naive.keys(self.dialect), naive.keys("sbus-dot")).filter(bool))
        self.agrees(chan, self.routes.find(chan), self.takers(chan))

    @invariant()
    def plain_channels_go_to_who_subscribed(self) -> None:
        for chan in self.pool:
            self.agrees(chan, self.routes.find(chan), self.takers(chan))

    @invariant()
    def addressed_channels_go_to_whom_they_name(self) -> None:
        for chan in CHANNELS:
            if not self.forms:
                assert reason_of(self.routes.find, chan) == "bad_channel"
                assert sorted(self.routes.local(chan).all) == sorted(self.takers(chan))
            elif chan == b"!":
                self.agrees(chan, self.routes.find(chan), set(self.identities))
            else:
                expected = {
                    who for who, identity in self.identities.items() if directed_targets.matches(chan[1:], identity)
                }
                self.agrees(chan, self.routes.find(chan), expected, unaddressed=not expected)

    @rule(chan=st.sampled_from(REFUSED))
    def find_no_channel(self, chan: bytes) -> None:
        expected = "bad_target" if chan.startswith((b"!/", b"!?")) and self.forms else "bad_channel"
        assert reason_of(self.routes.find, chan) == expected

    @rule(data=st.data(), tree=st.sampled_from([b"", BUS, SECRET]), tail=st.sampled_from([b"", b" ", b"\xff"]))
    def deliver_locally(self, data: st.DataObject, tree: bytes, tail: bytes) -> None:
        key = tree + data.draw(st.one_of(naive.keys("path"), naive.keys(self.dialect))) + tail
        assert sorted(self.routes.local(key).all) == sorted(self.takers(key))

    @invariant()
    def the_tap_goes_to_those_who_asked_for_the_verdict(self) -> None:
        expected = [sorted(self.takers(TAP + name.encode())) for name in NAMES]
        assert [sorted(tap.all) for tap in self.routes.taps] == (expected if any(expected) else [])

    @invariant()
    def what_is_remembered_is_bounded(self) -> None:
        assert len(self.routes.known) <= self.cache

    @invariant()
    def counts_are_right(self) -> None:
        assert {receiver for receiver in self.identities if self.routes.wants_meta(receiver)} == self.meta
        assert len(self.routes) == len(self.identities)
        assert self.routes.subscriptions == self.held.total()
        for receiver in self.identities:
            held = {text: count for (who, text), count in self.held.items() if who == receiver and count}
            assert self.routes.patterns(receiver) == held

    def teardown(self) -> None:
        """When all have left, nothing is left of them."""
        for receiver in sorted(self.identities):
            self.part(receiver)
        assert self.routes.taps == ()
        assert (self.routes.subscriptions, len(self.routes), self.routes.bytes_of(None)) == (0, 0, 0)


TestRoutesMachine = RoutesMachine.TestCase
TestRoutesMachine.settings = examples(60)


def routes_of(dialect: str, *patterns: bytes, cache: int = 4096) -> Routes[int]:
    """Routes with a receiver for each pattern, numbered from 0."""
    routes: Routes[int] = Routes(DIALECTS[dialect], cache)
    for number, text in enumerate(patterns):
        routes.join(number, b"h/p/%d" % number)
        routes.subscribe(number, text)
    return routes


CACHED = (b"a", b"b", b"!", b"!h", b"!h/p/0", b"!nobody")
#: changes, and the channels whose routes they change
CHANGES: dict[str, tuple[Callable[[Routes[int]], object], tuple[bytes, ...]]] = {
    "a literal pattern": (lambda routes: routes.subscribe(0, b"b"), (b"b",)),
    "the last of a literal pattern": (lambda routes: routes.unsubscribe(0, b"a"), (b"a",)),
    "wildcards": (lambda routes: routes.subscribe(0, b"b/*"), (b"a", b"b")),
    "another receiver": (lambda routes: routes.join(9, b"h/p/9"), CACHED[2:]),
    "another identity": (lambda routes: routes.rename(0, b"h/p/9"), CACHED[2:]),
    "metadata": (lambda routes: routes.set_meta(0, True), CACHED),
    "groups": (lambda routes: routes.set_groups([b"b/", b"a"]), CACHED),
    "the tap": (lambda routes: routes.subscribe(0, b"!/tap/"), ()),
    "a secret pattern": (lambda routes: routes.subscribe(0, b"!/cred/1/2/3/"), ()),
    "a pattern of the bus": (lambda routes: routes.subscribe(0, b"!/own/"), ()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_forgets_only_routes_that_it_changes(name: str) -> None:
    routes = routes_of("path", b"a")
    before = {chan: routes.find(chan) for chan in CACHED}
    change, expected = CHANGES[name]
    change(routes)
    assert tuple(chan for chan in CACHED if routes.find(chan) is not before[chan]) == expected


def test_a_channel_seen_before_is_one_look_up() -> None:
    routes = routes_of("path", b"c", cache=2)
    first = routes.find(b"c")
    # Two generations: the channel is still remembered after the swap, and comes back into the younger one.
    routes.find(b"x")
    routes.find(b"y")
    assert routes.known.get(b"c") is None
    assert routes.find(b"c") is routes.known.get(b"c") is first
    with pytest.raises(BadDatagram):
        routes.find(b"a b")
    assert len(routes.known) == 2


@pytest.mark.parametrize(("form", "most"), [(b"%d", 8), (b"!%d", 4)])
def test_no_more_channels_are_cached_than_may_be(form: bytes, most: int) -> None:
    routes = routes_of("path", b"", cache=4)
    for number in range(100):
        routes.find(form % number).carried += 1
    assert len(routes.carried()) == most


def test_the_receivers_of_cached_channels_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.core.matching.routes.RECEIVERS", 1000)
    routes = routes_of("path", *[b"c/%d" % number for number in range(200)], *[b"c/*"] * 30)
    for number in [*range(200), *range(40), *range(200)] * 2:
        assert len(routes.find(b"c/%d" % number).plain.all) == 31
        held = {one.plain: len(one.plain.all) for one in routes.known.values(0)}
        assert sum(held.values()) <= 1000 + 31
    # Channels that share their receivers take no more than one.
    for number in range(200, 300):
        routes.find(b"c/%d" % number)
    assert len(routes.known) > 100


def test_a_heartbeat_has_an_effect_without_receivers() -> None:
    srcs = {b"heartbeat/a": b"a", b"heartbeat/heartbeat/a": b"heartbeat/a"}
    for chan in (*srcs, b"heartbeat/", b"heartbeat/?", b"heartbeats/a", b"x/heartbeat/a"):
        route, src = routes_of("path").find(chan), srcs.get(chan, b"")
        assert (route.heartbeat, route.special) == (src, bool(src)), chan


def test_carried_messages_are_listed_once_with_all_receivers() -> None:
    routes = routes_of("path", b"a/b", b"a/", b"a/", cache=4)
    routes.set_meta(2, True)
    for chan in (b"a/b", b"!", b"quiet", b"a/b"):
        routes.find(chan).carried += chan != b"quiet"
    assert sorted(routes.carried()) == [(b"!", 1, 3), (b"a/b", 2, 3)]
    assert routes.carried() == []
    # A route in use keeps its count when the cache is full.
    routes.find(b"a/b").carried += 1
    for number in range(4):
        routes.find(b"n/%d" % number)
    routes.find(b"a/b").carried += 1
    assert routes.carried() == [(b"a/b", 2, 3)]


def test_the_patterns_of_a_receiver_that_has_left_go_in_portions() -> None:
    routes: Routes[int] = Routes(DIALECTS["path"])
    routes.join(1, b"h/p/1", owner=1000)
    for text in (b"a", b"b", b"a", b"c"):
        routes.subscribe(1, text)
    assert routes.find(b"c").plain.all == (1,)
    routes.retire(1)
    assert routes.present(routes.find(b"c").plain.all) == ()
    assert not routes.forget_some(1, 2)
    assert (routes.subscriptions, routes.find(b"a").plain.all) == (1, ())
    assert routes.forget_some(1, 2)
    assert (routes.subscriptions, routes.bytes_of(1000), routes.find(b"c").plain.all) == (0, 0, ())


def test_levels_are_counted_in_the_dialect_of_a_receiver() -> None:
    routes: Routes[int] = Routes(DIALECTS["path"])
    for receiver, dialect in ((1, "path"), (2, "sbus-dot")):
        routes.join(receiver, b"h/p/%d" % receiver, DIALECTS[dialect])
    levels = [[routes.levels_of(receiver, text) for text in (b"a.b/c", b"a.b.c", b"!/a/b")] for receiver in (1, 2)]
    assert levels == [[2, 1, 3], [2, 3, 3]]
