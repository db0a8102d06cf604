"""Routes: whatever clients do, a channel goes to just those whom the naive matcher names.

A state machine lets receivers of all dialects come, go, subscribe, change their name and ask for meta, with so few
remembered channels that the memory is swapped all the time.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bccnd.core import bccn1, targets
from bccnd.core.frames import TAP
from bccnd.core.patterns import DIALECTS
from bccnd.core.routes import Route, Routes
from bccnd.core.secret import PREFIX as SECRET
from bccnd.core.verdicts import NAMES
from bccnd.errors import BadDatagram
from tests.core import naive
from tests.core.material import examples, reason_of

RECEIVERS = range(4)
IDENTITIES = [b"h/a/1", b"h/a/1/2", b"h/a/2", b"h/b/1", b"h2/a/1", b"h/a/1"]
CHANNELS = [
    b"!",
    b"!h",
    b"!h/a",
    b"!h/a/1",
    b"!h/a/1/*",
    b"!h/*",
    b"!h2",
    b"!1",
    b"!h/",
    b"!*",
    b"!nobody",
    b"!h/a/1/2",
]
#: what patterns of the bus begin with; each of the last two has a tree of its own
BUS, TREES = b"!/", (b"!/", SECRET, TAP)
#: ends of patterns for the tap
TAPPED = [b"", b"*", b">", b"accepted", b"duplicate", b"bad_*", b"bad_src", b"accepted/", b"*/", b"nonsense", b"a*b"]
REFUSED = [b"!/", b"!/a", b"!?", b"!?a", b"", b"a b", b"a:b", b"a|b", b"x" * 1025, b"caf\xc3\xa9", b"a\n"]


class RoutesMachine(RuleBasedStateMachine):
    """The index beside a list of who holds what. After every step all channels of a small pool are asked for, so that
    each of them has been remembered before whatever comes next."""

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
        self.pool = data.draw(st.lists(keys, min_size=3, max_size=6))
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
        """What decides which patterns may take which keys: these begin in the same way."""
        if text.startswith((SECRET, TAP)):
            return SECRET if text.startswith(SECRET) else TAP
        return BUS if text.startswith(b"!" if self.forms else BUS) else b""

    def takers(self, key: bytes) -> set[int]:
        """Who takes a key by a pattern."""
        begins = self.begins(key)
        return {
            receiver
            for (receiver, text), count in self.held.items()
            if count
            and self.begins(text) == begins
            # Keys of the bus are written with slashes, whatever the channels are written with.
            and naive.matches("path" if begins else self.dialects[receiver], text, key)
        }

    def agrees(self, chan: bytes, route: Route, expected: set[int], *, nobody: bool = False) -> None:
        groups = {n for n, text in enumerate(self.groups) if naive.matches(self.dialect, text, chan)}
        assert sorted(route.plain) == sorted(expected - self.meta)
        assert sorted(route.meta) == sorted(expected & self.meta)
        assert route.frame_head == b"MSG " + chan + b"\0"
        assert route.nobody == nobody
        assert route.special == bool(nobody or expected & self.meta or groups or route.heartbeat)
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
                assert sorted(self.routes.local(chan)) == sorted(self.takers(chan))
            elif chan == b"!":
                self.agrees(chan, self.routes.find(chan), set(self.identities))
            else:
                expected = {who for who, identity in self.identities.items() if targets.matches(chan[1:], identity)}
                self.agrees(chan, self.routes.find(chan), expected, nobody=not expected)

    @rule(chan=st.sampled_from(REFUSED))
    def find_no_channel(self, chan: bytes) -> None:
        expected = "bad_target" if chan.startswith((b"!/", b"!?")) and self.forms else "bad_channel"
        assert reason_of(self.routes.find, chan) == expected

    @rule(data=st.data(), tail=st.sampled_from([b"", b" ", b"\xff"]))
    def deliver_locally(self, data: st.DataObject, tail: bytes) -> None:
        key = data.draw(naive.keys(self.dialect)) + tail
        assert sorted(self.routes.local(key)) == sorted(self.takers(key))

    @rule(data=st.data(), tree=st.sampled_from([BUS, SECRET]))
    def deliver_the_business_of_the_bus(self, data: st.DataObject, tree: bytes) -> None:
        key = tree + data.draw(st.one_of(naive.keys("path"), naive.keys(self.dialect)))
        assert sorted(self.routes.local(key)) == sorted(self.takers(key))

    @invariant()
    def the_tap_goes_to_those_who_asked_for_the_verdict(self) -> None:
        expected = [sorted(self.takers(TAP + name.encode())) for name in NAMES]
        assert [sorted(found) for found in self.routes.taps] == (expected if any(expected) else [])

    @invariant()
    def what_is_remembered_is_bounded(self) -> None:
        assert len(self.routes.known) <= self.cache
        assert len(self.routes._old) <= self.cache
        assert len(self.routes._addressed) <= self.cache

    @invariant()
    def counts_are_right(self) -> None:
        assert len(self.routes) == len(self.identities)
        assert self.routes.subscriptions == self.held.total()
        for receiver in self.identities:
            held = {text: count for (who, text), count in self.held.items() if who == receiver and count}
            assert self.routes.patterns(receiver) == held

    def teardown(self) -> None:
        """When all have left, nothing is left of them."""
        for receiver in sorted(self.identities):
            self.part(receiver)
        trees = [*self.routes._plain.values(), self.routes._bus, self.routes._secret, self.routes._tap]
        assert all(tree._root.empty() for tree in trees)
        assert self.routes.taps == ()
        assert not self.routes._by_prefix
        assert not self.routes._held
        assert not self.routes._dialects
        assert not self.routes._meta
        assert (self.routes.subscriptions, len(self.routes)) == (0, 0)


TestRoutesMachine = RoutesMachine.TestCase
TestRoutesMachine.settings = examples(50)


def routes_of(dialect: str, *patterns: bytes, cache: int = 4096) -> Routes[int]:
    """Routes with a receiver for each pattern, numbered from 0."""
    routes: Routes[int] = Routes(DIALECTS[dialect], cache)
    for number, text in enumerate(patterns):
        routes.join(number, b"h/p/%d" % number)
        routes.subscribe(number, text)
    return routes


@pytest.mark.parametrize("dialect", naive.DIALECT_NAMES)
def test_who_takes_everything_does_not_take_the_business_of_the_bus(dialect: str) -> None:
    mark = naive.separator(dialect)
    routes = routes_of(dialect, b"", b"*", b">", mark, b"!/cred/whoami", b"!" + mark)
    takers = routes.local(b"!/cred/whoami")
    assert 4 in takers
    assert not {0, 1, 2, 3} & set(takers)


def test_bus_patterns_of_sbus_work_on_bus_keys() -> None:
    routes = routes_of("path", b"!/", b"!/bccn/*", b"!/bccn/", b"!/>", b"!*", b"!*/", b"!/cred/")
    assert sorted(routes.local(b"!/bccn/whoami")) == [0, 1, 2, 3, 5]
    assert sorted(routes.local(b"!/bccn/meta/on")) == [0, 2, 3, 5]


@pytest.mark.parametrize("dialect", naive.DIALECT_NAMES)
@pytest.mark.parametrize("forms", [True, False])
def test_secret_messages_and_the_tap_need_patterns_that_ask_for_them(dialect: str, forms: bool) -> None:
    sly = [
        b"",
        b"*",
        b"!*",
        b"!",
        b"!/",
        b"!/*",
        b"!/>",
        b"!/*/",
        b"!*/",
        b"!*/*/",
        b"!/c*/",
        b"!/t*/*",
        b"!/+/",
        b"!//",
    ]
    routes: Routes[bytes] = Routes(DIALECTS[dialect], forms=forms)
    for text in [*sly, b"!/cred/1/2/3/", b"!/tap/looped"]:
        routes.join(text, b"h/p/1")
        routes.subscribe(text, text)
    assert routes.local(b"!/cred/1/2/3/x") == (b"!/cred/1/2/3/",)
    assert {name: who for name, who in zip(NAMES, routes.taps, strict=True) if who} == {"looped": (b"!/tap/looped",)}


# -- several dialects at once


def speaking(*patterns: tuple[str, bytes], cache: int = 4096) -> Routes[str]:
    """Routes whose receivers are called by their dialects; each has one pattern."""
    routes: Routes[str] = Routes(DIALECTS["path"], cache)
    for dialect, text in patterns:
        routes.join(dialect, b"h/p/1", DIALECTS[dialect])
        routes.subscribe(dialect, text)
    return routes


@pytest.mark.parametrize(
    ("pattern", "chan", "reached"),
    [
        (b"a/>", b"a/b/c", ["path"]),
        (b"a/>", b"a/>", ["path", "sbus", "broker", "sbus-dot"]),
        (b"a/", b"a/b/c", ["path", "sbus"]),
        (b"a/", b"a/", ["path", "sbus", "broker", "sbus-dot"]),
        (b"a.", b"a.b.c", ["sbus-dot"]),
        (b"a/*", b"a", ["broker"]),
        # Where tokens end at dots, a slash is a byte like any other.
        (b"a/*", b"a/b", ["path", "sbus", "broker", "sbus-dot"]),
        (b"a/*", b"a/b/c", ["broker", "sbus-dot"]),
        (b"a.*", b"a.b", ["path", "sbus", "sbus-dot"]),
        (b"a.*", b"a.b.c", ["path", "sbus"]),
        (b"a/+", b"a/b", ["broker"]),
        (b"*", b"a/b", ["broker", "sbus-dot"]),
        (b"*", b"a.b", ["path", "sbus", "broker"]),
        (b"", b"a/b.c", ["path", "sbus", "broker", "sbus-dot"]),
        (b"a.b/c", b"a.b/c", ["path", "sbus", "broker", "sbus-dot"]),
    ],
)
def test_one_text_means_to_each_what_his_dialect_says(pattern: bytes, chan: bytes, reached: list[str]) -> None:
    routes = speaking(*((dialect, pattern) for dialect in naive.DIALECT_NAMES))
    assert sorted(routes.find(chan).plain) == sorted(reached)
    assert sorted(routes.local(chan)) == sorted(reached)
    routes.leave(reached[0])
    assert sorted(routes.find(chan).plain) == sorted(reached[1:])


def test_who_names_no_dialect_speaks_that_of_the_groups() -> None:
    routes: Routes[int] = Routes(DIALECTS["sbus-dot"])
    routes.join(1, b"h/p/1")
    routes.join(2, b"h/p/2", DIALECTS["path"])
    routes.set_groups([b"a."])
    for receiver in (1, 2):
        routes.subscribe(receiver, b"a.")
    assert (routes.find(b"a.b").plain, routes.find(b"a.b").groups) == ((1,), (0,))


# -- where there are no forms


def test_without_forms_keys_with_a_mark_are_plain_and_no_channels() -> None:
    routes: Routes[int] = Routes(DIALECTS["sbus"], forms=False)
    for receiver, text in enumerate([b"!x", b"!*", b"!", b"", b"!/x"]):
        routes.join(receiver, b"!x")
        routes.subscribe(receiver, text)
    for key, reached in ((b"!x", [0, 1, 3]), (b"!", [1, 2, 3]), (b"!x/y", [3]), (b"!/x", [4]), (b"x y", [3])):
        assert reason_of(routes.find, key) in ("bad_channel", "bad_target")
        assert sorted(routes.local(key)) == reached
    assert sorted(routes.find(b"x").plain) == [3]


# -- another name


@pytest.mark.parametrize("cache", [1, 4096])
def test_who_is_renamed_is_reached_by_the_new_name_only_and_keeps_the_rest(cache: int) -> None:
    routes = routes_of("path", b"c", b"c", cache=cache)
    routes.set_meta(0, True)
    for chan in (b"!h/p/0", b"!h/p/0/spare", b"!h/p/0/*", b"!h", b"!other", b"c"):
        routes.find(chan)
    routes.rename(0, b"h/p/0/spare")
    assert routes.find(b"!h/p/0").nobody
    for chan in (b"!h/p/0/spare", b"!h/p/0/*"):
        assert (routes.find(chan).meta, routes.find(chan).plain) == ((0,), ())
    routes.rename(0, b"other/p/0")
    assert routes.find(b"!h/p/0/*").nobody
    assert (routes.find(b"!h").plain, routes.find(b"!other").meta, routes.find(b"!").meta) == ((1,), (0,), (0,))
    assert (routes.find(b"c").plain, routes.find(b"c").meta) == ((1,), (0,))
    assert (len(routes), routes.subscriptions, routes.patterns(0)) == (2, 2, {b"c": 1})


def test_two_of_one_name_are_renamed_each_for_himself() -> None:
    routes: Routes[int] = Routes(DIALECTS["path"])
    for receiver in (1, 2):
        routes.join(receiver, b"h/p/1")
    routes.rename(1, b"h/p/1/a")
    assert (routes.find(b"!h/p/1").plain, routes.find(b"!h/p/1/a").plain) == ((2,), (1,))
    routes.rename(1, b"h/p/1")
    assert sorted(routes.find(b"!h/p/1").plain) == [1, 2]


# -- the tap


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (b"!/tap/", NAMES),
        (b"!/tap/*", NAMES),
        (b"!/tap/>", NAMES),
        (b"!/tap/duplicate", ("duplicate",)),
        (b"!/tap/integrity_*", ("integrity_missing", "integrity_unknown", "integrity_failed")),
        (b"!/tap/dup", ()),
        (b"!/tap/duplicate/", ()),
        (b"!/tap", ()),
        (b"!/*/duplicate", ()),
        (b"!/", ()),
        (b"", ()),
        (b"!/tap/d*e", ()),
    ],
)
@pytest.mark.parametrize("dialect", naive.DIALECT_NAMES)
def test_the_tap_is_for_the_verdicts_that_a_pattern_names(dialect: str, pattern: bytes, names: tuple[str, ...]) -> None:
    routes = routes_of(dialect, pattern, pattern)
    expected = tuple((0, 1) if name in names else () for name in NAMES) if names else ()
    assert routes.taps == expected
    routes.leave(0)
    routes.unsubscribe(1, pattern)
    assert routes.taps == ()


def test_taps_change_no_route_that_is_remembered() -> None:
    routes = routes_of("path", b"c")
    kept = routes.find(b"c")
    routes.subscribe(0, b"!/tap/")
    routes.subscribe(0, b"!/cred/1/2/3/")
    routes.unsubscribe(0, b"!/tap/")
    assert routes.known.get(b"c") is kept


def test_patterns_of_the_bus_take_no_directed_message() -> None:
    routes = routes_of("path", b"!h/p/7", b"!", b"!*")
    assert routes.find(b"!h/p/7").nobody
    assert routes.find(b"!other").nobody


@pytest.mark.parametrize("key", [b"!h p", b"!", b"!h/p/0", b"!h:p"])
def test_a_directed_key_that_is_no_channel_names_nobody(key: bytes) -> None:
    assert routes_of("path", b"", key, b"*").local(key) == ()


def test_the_all_form_reaches_those_without_a_pattern() -> None:
    routes: Routes[int] = Routes(DIALECTS["path"])
    assert routes.find(b"!").plain == ()
    assert not routes.find(b"!").nobody
    routes.join(7, b"h/p/1")
    assert routes.find(b"!").plain == (7,)


def test_many_of_one_identity_are_all_reached() -> None:
    routes: Routes[int] = Routes(DIALECTS["path"])
    for receiver in range(3):
        routes.join(receiver, b"h/p/1")
    assert sorted(routes.find(b"!h/p/1").plain) == [0, 1, 2]
    routes.leave(1)
    assert sorted(routes.find(b"!h/p/1").plain) == [0, 2]


@given(st.lists(st.integers(0, 12), max_size=60), st.integers(1, 5))
@examples(200)
def test_a_flood_of_channels_is_bounded_and_changes_no_answer(chans: list[int], cache: int) -> None:
    routes = routes_of("path", b"c/1", b"c/*", b"c/1*", cache=cache)
    for number in chans:
        chan = b"c/%d" % number
        takers = {1} | ({0} if number == 1 else set()) | ({2} if chan.startswith(b"c/1") else set())
        assert set(routes.find(chan).plain) == takers
        assert len(routes.known) + len(routes._old) <= 2 * cache


@pytest.mark.parametrize("form", [b"c/%d", b"!h/%d"])
def test_what_is_remembered_of_a_flood_stays_below_the_cap(form: bytes) -> None:
    routes = routes_of("path", b"", cache=10)
    for number in range(1000):
        routes.find(form % number)
        assert max(len(routes.known), len(routes._old), len(routes._addressed)) <= 10


def test_a_channel_seen_before_is_one_look_up() -> None:
    routes = routes_of("path", b"c", cache=2)
    first = routes.find(b"c")
    assert routes.known.get(b"c") is first
    # Two generations: the channel is still remembered after the swap, and comes back into the younger one.
    routes.find(b"x")
    routes.find(b"y")
    assert routes.known.get(b"c") is None
    assert routes.find(b"c") is first
    assert routes.known.get(b"c") is first


@pytest.mark.parametrize("chan", [b"!", b"!h", b"!h/p/0", b"!nobody"])
def test_an_addressed_channel_is_remembered_until_somebody_comes_or_goes(chan: bytes) -> None:
    routes = routes_of("path", b"c")
    first = routes.find(chan)
    routes.subscribe(0, b"other/*")
    assert routes.find(chan) is first
    routes.join(9, b"h/p/9")
    assert routes.find(chan) is not first


def test_a_refused_channel_is_not_remembered() -> None:
    routes = routes_of("path", b"")
    for chan in REFUSED:
        with pytest.raises(BadDatagram):
            routes.find(chan)
    assert not len(routes.known)
    assert not routes._addressed


def test_a_literal_pattern_forgets_its_own_channel_only() -> None:
    routes = routes_of("path", b"a")
    routes.join(9, b"h/p/9")
    kept, changed = routes.find(b"b"), routes.find(b"a")
    routes.subscribe(9, b"a")
    assert routes.find(b"b") is kept
    assert routes.find(b"a") is not changed
    assert sorted(routes.find(b"a").plain) == [0, 9]


def test_a_literal_pattern_reaches_a_channel_of_the_elder_generation() -> None:
    routes = routes_of("path", b"a", cache=1)
    routes.join(9, b"h/p/9")
    routes.find(b"a")
    routes.find(b"b")
    routes.subscribe(9, b"a")
    assert sorted(routes.find(b"a").plain) == [0, 9]
    routes.find(b"b")
    routes.unsubscribe(9, b"a")
    assert routes.find(b"a").plain == (0,)


def test_the_longest_channel_has_a_route() -> None:
    routes = routes_of("path", b"")
    assert routes.find(b"c" * bccn1.MAX_CHAN).plain == (0,)
    assert routes.find(b"/" * bccn1.MAX_CHAN).plain == (0,)


# -- keys of the bus, in every dialect


@pytest.mark.parametrize("dialect", naive.DIALECT_NAMES)
@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        (b"!/bccn/liveness/", b"!/bccn/liveness/relay01/cardsys/7", True),
        (b"!/bccn/liveness/relay01/", b"!/bccn/liveness/relay01/cardsys/7", True),
        (b"!/bccn/liveness/relay01/*/7", b"!/bccn/liveness/relay01/cardsys/7", True),
        (b"!/bccn/liveness/>", b"!/bccn/liveness/relay01.lan/cardsys/7", True),
        (b"!/bccn/liveness/relay01", b"!/bccn/liveness/relay01.lan", False),
        (b"!/bccn/liveness/relay01.", b"!/bccn/liveness/relay01.lan", False),
        (b"!/bccn/liveness/relay01.*", b"!/bccn/liveness/relay01.lan", True),
        (b"!/bccn/*", b"!/bccn/a.b", True),
        (b"!/bccn/*", b"!/bccn/a/b", False),
        (b"!/bccn/+", b"!/bccn/a", False),
        (b"!/bccn/+", b"!/bccn/+", True),
        (b"!/", b"!/bccn/a", True),
        (b"!/>", b"!/bccn/a", True),
        (b"!.bccn.", b"!/bccn/a", False),
    ],
)
def test_keys_of_the_bus_are_matched_by_slashes_in_every_dialect(
    dialect: str, pattern: bytes, key: bytes, matches: bool
) -> None:
    routes = routes_of(dialect, pattern)
    assert routes.local(key) == ((0,) if matches else ())
    assert routes.unsubscribe(0, pattern)
    assert routes.local(key) == ()


# -- whose heartbeats go a way


@pytest.mark.parametrize(
    ("chan", "src"),
    [
        (b"heartbeat/relay01/cardsys/7", b"relay01/cardsys/7"),
        (b"heartbeat/a", b"a"),
        (b"heartbeat//", b"/"),
        (b"heartbeat/heartbeat/a", b"heartbeat/a"),
        (b"heartbeat/", b""),
        (b"heartbeat", b""),
        (b"heartbeats/a", b""),
        (b"heartbeat.a", b""),
        (b"Heartbeat/a", b""),
        (b"x/heartbeat/a", b""),
        (b"!heartbeat/a", b""),
        (b"!", b""),
    ],
)
@pytest.mark.parametrize("dialect", naive.DIALECT_NAMES)
def test_a_route_knows_whose_heartbeats_go_that_way(dialect: str, chan: bytes, src: bytes) -> None:
    route = routes_of(dialect, b"").find(chan)
    assert route.heartbeat == src
    # There is something to do even where nobody has subscribed.
    assert routes_of(dialect).find(chan).special == bool(src or chan.startswith(b"!h"))
