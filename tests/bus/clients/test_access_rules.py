"""Access: rules, peers, rights and reloads. Refusals of a bus with rules are in test_model.py, too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bccnd.bus.clients.access_rules import Access, Admission, Allowed, Rights, Rule, admit_all, by_mode, by_user
from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.wire import frames
from bccnd.net.peer import Peer
from tests.support import ANN, BOB, Hub, messages, refusals

#: the user of the daemon in these tables
DAEMON_UID, DAEMON_GID = 900, 901
ROOT = Peer(1, 0, 0, frozenset({0}), b"init", 1)
OWN = Peer(2, DAEMON_UID, 100, frozenset({100}), b"bccn", 1)
MEMBER = Peer(3, 1000, 1000, frozenset({1000, DAEMON_GID}), b"editor", 1)
GUEST = Peer(4, 1001, 1001, frozenset({1001, 50}), b"sensor", 1)
UNKNOWN = Peer(0, 1001, 1001, frozenset({1001}), b"unknown", 0)


def rights(rules: list[Rule], peer: Peer) -> Rights:
    return Access(rules, DIALECTS["path"], DAEMON_UID, DAEMON_GID).rights(peer)


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (Rule(), {ROOT, OWN, MEMBER, GUEST, UNKNOWN}),
        (Rule(uid=0), {ROOT}),
        (Rule(uid=1001), {GUEST, UNKNOWN}),
        (Rule(gid=1001), {GUEST, UNKNOWN}),
        (Rule(gid=50), {GUEST}),
        (Rule(gid=DAEMON_GID), {MEMBER}),
        (Rule(program=b"sensor"), {GUEST}),
        (Rule(uid=1001, program=b"unknown"), {UNKNOWN}),
        (Rule(uid=1000, program=b"sensor"), set()),
        (Rule(uid=1001, gid=50, program=b"sensor"), {GUEST}),
        (Rule(gid=0), {ROOT}),
    ],
)
def test_rule_applies_if_all_its_conditions_hold(rule: Rule, fits: set[Peer]) -> None:
    assert {peer for peer in (ROOT, OWN, MEMBER, GUEST, UNKNOWN) if rule.fits(peer)} == fits


TAP_OFF, TAP_ON = Rule(tap=False), Rule(tap=True)


@pytest.mark.parametrize(
    ("right", "rules", "may"),
    [
        # Without a rule the tap is for root, the daemon's user and its group.
        ("tap", [], {ROOT, OWN, MEMBER}),
        ("tap", [TAP_OFF], set()),
        ("tap", [Rule(uid=1001, tap=True)], {ROOT, OWN, MEMBER, GUEST}),
        ("tap", [Rule(uid=1000, tap=False)], {ROOT, OWN}),
        ("tap", [Rule(uid=1001, tap=True), TAP_OFF], {GUEST}),
        ("tap", [TAP_OFF, Rule(uid=1001, tap=True)], set()),
        # Where rules speak of another right and none fits, root and the daemon's user have it.
        ("tag", [], {ROOT, OWN, MEMBER, GUEST}),
        ("tag", [Rule(tap=False, publish=())], {ROOT, OWN, MEMBER, GUEST}),
        ("tag", [Rule(tag=False)], set()),
        ("tag", [Rule(uid=1001, tag=True)], {ROOT, OWN, GUEST}),
        ("tag", [Rule(uid=1001, tag=False)], {ROOT, OWN}),
        ("tag", [Rule(uid=1001, tag=False), Rule(tag=True)], {ROOT, OWN, MEMBER}),
        # Of rules for publishing, the first that fits decides; the key is `a`.
        ("publish", [], {ROOT, OWN, MEMBER, GUEST}),
        ("publish", [Rule(subscribe=())], {ROOT, OWN, MEMBER, GUEST}),
        ("publish", [Rule(publish=())], set()),
        ("publish", [Rule(publish=(b"a",))], {ROOT, OWN, MEMBER, GUEST}),
        ("publish", [Rule(uid=1001, publish=(b"a",))], {ROOT, OWN, GUEST}),
        ("publish", [Rule(uid=1001, publish=(b"b",)), Rule(publish=(b"a",))], {ROOT, OWN, MEMBER}),
        ("publish", [Rule(uid=1001, subscribe=(b"b",)), Rule(publish=(b"a",))], {ROOT, OWN, MEMBER, GUEST}),
        ("publish", [Rule(uid=0, publish=()), Rule(uid=DAEMON_UID, publish=(b"b",))], set()),
    ],
)
def test_the_first_rule_that_speaks_of_a_right_and_fits_decides(right: str, rules: list[Rule], may: set[Peer]) -> None:
    def has(peer: Peer) -> bool:
        allowed: Allowed | bool | None = getattr(rights(rules, peer), right)
        return allowed.permits(b"a") if isinstance(allowed, Allowed) else allowed in (None, True)

    assert {peer for peer in (ROOT, OWN, MEMBER, GUEST) if has(peer)} == may


# -- keys

KEYS = [b"a", b"a/b", b"a/", b"ab", b"two words", b"", b"!", b"!relay01/*", b"!/app/x", b"!/cred/1/2/3/x", b"\xff"]


@pytest.mark.parametrize(
    ("patterns", "permitted"),
    [
        ((), set()),
        ((b"",), set(KEYS)),
        ((b"a/",), {b"a/b", b"a/"}),
        ((b">",), {b"a", b"a/b", b"a/", b"ab", b"two words", b"", b"\xff"}),
        ((b"!",), {b"!"}),
        ((b"!*",), {b"!"}),
        ((b"!/",), {b"!/app/x", b"!/cred/1/2/3/x"}),
        ((b"!/cred/*/2/*/",), {b"!/cred/1/2/3/x"}),
        ((b"a", b"!"), {b"a", b"!"}),
    ],
)
def test_keys_are_permitted_by_patterns_and_marked_ones_only_by_marked_ones(
    patterns: tuple[bytes, ...], permitted: set[bytes]
) -> None:
    allowed = Allowed(patterns, DIALECTS["path"])
    for _ in range(2):  # the second time from memory
        assert {key for key in KEYS if allowed.permits(key)} == permitted


def test_what_is_remembered_of_keys_is_bounded_and_right() -> None:
    allowed = Allowed((b"a/",), DIALECTS["path"])
    for number in range(5000):
        assert allowed.permits(b"a/%d" % number)
        assert not allowed.permits(b"b/%d" % number)
        assert len(allowed._answers) <= 4097
    for number in range(20):
        assert allowed.permits(b"a/%d" % number + b"x" * 400_000)
    assert sum(map(len, allowed._answers)) < 1_000_000


@pytest.mark.parametrize(
    ("ours", "patterns", "theirs", "wanted"),
    [
        ("path", (b"a/",), "path", b"a/b"),
        ("path", (b"a/",), "path", b"a/*/c/"),
        ("path", (b"a/",), "path", b"a/>"),
        ("path", (b"",), "path", b""),
        ("path", (b"",), "path", b"!/x"),
        ("path", (b">",), "path", b""),
        ("path", (b"!/app/",), "path", b"!/app/x"),
        ("path", (b"!/app/",), "broker", b"!/app/x"),
        ("path", (b"a/",), "broker", b"a/+"),
        ("path", (b"a/",), "broker", b"a/+/*"),
        ("path", (b"a/",), "sbus-dot", b"a/b"),  # a single key is the same key everywhere
        ("sbus-dot", (b"a.",), "sbus-dot", b"a.b.*"),
        ("sbus-dot", (b"!/app/",), "sbus-dot", b"!/app/x/"),
        ("broker", (b"a/*",), "path", b"a/"),
        ("broker", (b"a/*",), "path", b"a"),
        ("path", (b"a",), "path", b"x*y"),  # which matches nothing
    ],
)
def test_a_pattern_is_granted_where_all_that_it_matches_is_allowed(
    ours: str, patterns: tuple[bytes, ...], theirs: str, wanted: bytes
) -> None:
    """Where it is not all of it, the property below finds a key that is not permitted."""
    assert Allowed(patterns, DIALECTS[ours]).covers(wanted, DIALECTS[theirs])


def test_no_pattern_that_is_granted_ever_matches_a_key_that_is_not_permitted() -> None:
    chance = random.Random(3)
    names = list(DIALECTS)

    def text(tokens: list[bytes], separator: bytes) -> bytes:
        return separator.join(chance.choice(tokens) for _ in range(chance.randint(1, 4)))

    granted = 0
    for _ in range(20_000):
        ours, theirs = DIALECTS[chance.choice(names)], DIALECTS[chance.choice(names)]
        tokens = [b"a", b"b", b"", b"*", b"+", b">", b"a*", b"!", b"!/a"]
        allowed = Allowed([text(tokens, ours.separator) for _ in range(chance.randint(1, 2))], ours)
        wanted = text(tokens, theirs.separator)
        if not allowed.covers(wanted, theirs):
            continue
        granted += 1
        marked = wanted.startswith(b"!")
        tree: PatternTree[int] = PatternTree(DIALECTS["path"] if marked else theirs)
        tree.add(tree.compile(wanted), 1)
        for _ in range(20):
            key = text([b"a", b"b", b"", b"ab", b"!", b"+", b"*"], chance.choice([ours, theirs]).separator)
            if key.startswith(b"!") == marked and tree.match(key):
                assert allowed.permits(key), (allowed._patterns, ours.name, wanted, theirs.name, key)
    assert granted > 1000


# -- connecting


@pytest.mark.parametrize(
    ("mode", "admitted"),
    [
        (0o600, {ROOT, OWN}),
        (0o660, {ROOT, OWN, MEMBER}),
        (0o666, {ROOT, OWN, MEMBER, GUEST, UNKNOWN}),
        (0o606, {ROOT, OWN, GUEST, UNKNOWN}),
        (0o000, {ROOT}),
        (0o060, {ROOT, MEMBER}),
        (0o444, {ROOT}),
        (0o777, {ROOT, OWN, MEMBER, GUEST, UNKNOWN}),
    ],
)
def test_abstract_address_admits_by_its_mode(mode: int, admitted: set[Peer]) -> None:
    admits = by_mode(mode, DAEMON_UID, DAEMON_GID)
    assert {peer for peer in (ROOT, OWN, MEMBER, GUEST, UNKNOWN) if admits(peer)} == admitted


def test_every_socket_has_its_own_admission_and_dialect(tmp_path: Path) -> None:
    checkers: list[tuple[str, Admission]] = [("broker", by_user([ANN.uid])), ("sbus-dot", admit_all)]
    with Hub(tmp_path, others=checkers) as hub:
        ann, bob, here = hub.connect(b"a/+", who=ANN, entrance=1), hub.connect(b"a.", who=BOB), hub.connect(b"a/")
        turned_away = hub.knock(BOB, 1)
        assert turned_away.receive() == b"CMSG !/bccn/error\0not_admitted "
        assert turned_away.ended()
        assert (hub.bus.counters.refused["not_admitted"], len(hub.bus.clients)) == (1, 3)
        for key in (b"a/b", b"a.b", b"a/b/c", b"a/+"):
            here.publish(key, key)
        assert [packet[4:].split(b"\0")[0] for packet in ann.all()] == [b"a/b", b"a/+"]
        assert [packet[4:].split(b"\0")[0] for packet in bob.all()] == [b"a.b"]
        assert [packet[4:].split(b"\0")[0] for packet in here.all()] == [b"a/b", b"a/b/c", b"a/+"]


RULES = [
    Rule(uid=ANN.uid, publish=(b"a/", b"!/app/"), subscribe=(b"a/", b"!/app/", b"!/cred/"), tag=True),
    Rule(uid=BOB.uid, subscribe=(b"",), tap=True, tag=False),
]


@pytest.fixture
def ruled(town: Hub) -> Hub:
    """A bus on which Ann and Bob may not do everything."""
    town.reload(rules=RULES)
    return town


def test_refused_connection_is_logged_once_and_takes_no_number(ruled: Hub, caplog: pytest.LogCaptureFixture) -> None:
    for peer in (ruled.connect(who=ANN), ruled.connect(who=ANN)):
        peer.publish(b"a/1", b"x")
        peer.send(*[b"SUB b", b"MSG b\0x", b"SUB !/tap/"] * 10)
        peer.publish(b"a/2", b"x")
        assert len(refusals(peer.all())) == 30
        first, second = (int(datagram.split(b":")[1]) for datagram in ruled.sent[-2:])
        assert second == first + 1
    (line,) = [message for message in caplog.messages if "not_permitted" in message]
    assert f"uid {ANN.uid}" in line
    assert ruled.bus.counters.errors.all() == {"not_permitted": 60}
    assert len(ruled.sent) == 4


# -- reloading


@pytest.mark.parametrize(
    "pattern", [b"!/cred////x", b"!/cred////x*", b"!/cred////", b"!/cred/%d/%d//x" % (ANN.gid, ANN.uid)]
)
def test_a_secret_pattern_that_was_granted_is_not_withdrawn_by_the_same_rules(town: Hub, pattern: bytes) -> None:
    rules = [Rule(uid=ANN.uid, subscribe=(pattern,))]
    town.reload(rules=rules)
    ann = town.connect(who=ANN)
    ann.send(frames.subscribe(pattern))
    packets = ann.all()
    held = dict(town.routes.patterns(ann.client.fd))
    town.reload(rules=rules)
    packets += ann.all()
    assert town.routes.patterns(ann.client.fd) == held
    assert len(refusals(packets)) == (not held)


def test_no_secret_key_is_got_that_the_rules_do_not_allow(town: Hub) -> None:
    # Only keys without credentials are allowed; the pattern stands for more.
    town.reload(rules=[Rule(uid=ANN.uid, subscribe=(b"!/cred////x",))])
    ann, root = town.connect(who=ANN), town.connect()
    ann.send(b"SUB !/cred////x")
    ann.all()
    root.publish(b"!/cred//%d//x" % ANN.uid, b"for ann")
    assert messages(ann.all(), b"!/cred//%d//x" % ANN.uid) == []


def test_rules_change_while_a_publisher_waits_and_hold_for_what_it_sends_then(town: Hub) -> None:
    blocker, ann = town.connect(b"a", b"b"), town.connect(who=ANN)
    blocker.send(b"CMSG blocking/soft/block")
    blocker.all()
    while not blocker.client.queue:
        town.deliver(((blocker.client.fd,), b"MSG x\0" + b"x" * 10_000))
    ann.publish(b"a", b"1")
    ann.publish(b"b", b"2")
    town.settle()
    assert ann.client.retry is not None
    town.reload(rules=[Rule(uid=ANN.uid, publish=(b"b",))])
    packets = blocker.all() + blocker.all()
    assert refusals(ann.all()) == [(b"not_permitted", b"a")]
    assert messages(packets, b"a") == []
    assert messages(packets, b"b") == [b"2"]
    assert town.bus.counters.published == 2
