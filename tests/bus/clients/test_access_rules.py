"""Access: rules, peers, rights and reloads. Refusals of a bus with rules are in test_model.py, too."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.bus.clients.access_rules import Access, Admission, Allowed, Rights, Rule, admit_all, by_mode, by_user
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.wire import frames
from bccnd.net.peer import Peer
from tests.core.material import examples
from tests.core.naive import DIALECT_NAMES, matches, separator
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


TAP_OFF = Rule(tap=False)


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
        # All conditions of a rule have to hold.
        ("tap", [Rule(gid=1001, tap=True), TAP_OFF], {GUEST}),
        ("tap", [Rule(gid=50, tap=True), TAP_OFF], {GUEST}),
        ("tap", [Rule(gid=DAEMON_GID, tap=True), TAP_OFF], {MEMBER}),
        ("tap", [Rule(gid=0, tap=True), TAP_OFF], {ROOT}),
        ("tap", [Rule(program=b"sensor", tap=True), TAP_OFF], {GUEST}),
        ("tap", [Rule(uid=1000, program=b"sensor", tap=True), TAP_OFF], set()),
        ("tap", [Rule(uid=1001, gid=50, program=b"sensor", tap=True), TAP_OFF], {GUEST}),
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
def test_the_first_rule_that_fits_and_names_a_right_decides(right: str, rules: list[Rule], may: set[Peer]) -> None:
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
def test_marked_keys_are_permitted_by_marked_patterns_only(patterns: tuple[bytes, ...], permitted: set[bytes]) -> None:
    allowed = Allowed(patterns, DIALECTS["path"])
    for _ in range(2):  # the second time from memory
        assert {key for key in KEYS if allowed.permits(key)} == permitted


def test_what_is_remembered_of_keys_is_bounded() -> None:
    allowed = Allowed((b"a/",), DIALECTS["path"])
    tracemalloc.start()
    try:
        for number in range(20_000):
            assert allowed.permits(b"a/%d" % number) is not allowed.permits(b"b/%d" % number)
            assert number % 500 or allowed.permits(b"a/%d" % number + b"x" * 400_000)
        assert tracemalloc.get_traced_memory()[0] < 3_000_000
    finally:
        tracemalloc.stop()


TOKENS = st.sampled_from([b"a", b"b", b"", b"ab", b"*", b"+", b">", b"a*", b"!", b"!/a"])
TEXTS = st.lists(TOKENS, min_size=1, max_size=4)


@given(st.sampled_from(DIALECT_NAMES), st.sampled_from(DIALECT_NAMES), TEXTS, TEXTS, st.integers(0, 3), st.lists(TEXTS))
@examples(500)
def test_no_granted_pattern_matches_a_forbidden_key(
    ours: str, theirs: str, permitted: list[bytes], more: list[bytes], same: int, keys: list[list[bytes]]
) -> None:
    allowed = Allowed([separator(ours).join(permitted)], DIALECTS[ours])
    pattern = separator(theirs).join([*permitted[:same], *more])
    marked = pattern.startswith(b"!")
    if allowed.covers(pattern, DIALECTS[theirs]):
        for tokens in keys:
            key = separator(theirs).join(tokens)
            if key.startswith(b"!") == marked and matches("path" if marked else theirs, pattern, key):
                assert allowed.permits(key)


@pytest.mark.parametrize(
    ("permitted", "ours", "wanted", "theirs"),
    [(b"a/*", "broker", b"a/", "path"), (b"!/app/", "sbus-dot", b"!/app/x/", "sbus-dot")],
)
def test_a_pattern_is_granted_in_other_words(permitted: bytes, ours: str, wanted: bytes, theirs: str) -> None:
    assert Allowed((permitted,), DIALECTS[ours]).covers(wanted, DIALECTS[theirs])


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


def test_a_refusal_is_logged_once_and_takes_no_number(town: Hub, caplog: pytest.LogCaptureFixture) -> None:
    town.reload(rules=[Rule(uid=ANN.uid, publish=(b"a/",), subscribe=(b"a/",))])
    for peer in (town.connect(who=ANN), town.connect(who=ANN)):
        peer.publish(b"a/1", b"x")
        peer.send(*[b"SUB b", b"MSG b\0x", b"SUB !/tap/"] * 10)
        peer.publish(b"a/2", b"x")
        assert len(refusals(peer.all())) == 30
        first, second = (int(datagram.split(b":")[1]) for datagram in town.sent[-2:])
        assert second == first + 1
    (record,) = [one for one in caplog.records if getattr(one, "event", "") == "not_permitted"]
    assert vars(record)["fields"]["uid"] == ANN.uid
    assert town.bus.counters.errors.all() == {"not_permitted": 60}
    assert len(town.sent) == 4


# -- reloading


@pytest.mark.parametrize(
    "pattern", [b"!/cred////x", b"!/cred////x*", b"!/cred////", b"!/cred/%d/%d//x" % (ANN.gid, ANN.uid)]
)
def test_the_same_rules_withdraw_no_granted_secret_pattern(town: Hub, pattern: bytes) -> None:
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


def test_no_secret_key_is_received_against_the_rules(town: Hub) -> None:
    # Only keys without credentials are allowed; the pattern stands for more.
    town.reload(rules=[Rule(uid=ANN.uid, subscribe=(b"!/cred////x",))])
    ann, root = town.connect(who=ANN), town.connect()
    ann.send(b"SUB !/cred////x")
    ann.all()
    root.publish(b"!/cred//%d//x" % ANN.uid, b"for ann")
    assert messages(ann.all(), b"!/cred//%d//x" % ANN.uid) == []


def test_a_client_without_a_pid_is_named_by_no_pid(hub: Hub) -> None:
    one, other = hub.connect(), hub.connect()
    hub.bus.registry.by_pid.remove(one.client)
    one.client.peer = one.client.peer._replace(pid=0, started=0)
    hub.bus.registry.by_pid.add(one.client)
    one.send(b"SUB !/cred////x")
    one.all()
    other.publish(b"!/cred///%d/x" % os.getpid(), b"secret")
    other.all()
    assert one.all() == []


def test_new_rules_hold_for_a_publisher_that_waits(town: Hub) -> None:
    blocker, ann = town.connect(b"a", b"b"), town.connect(who=ANN)
    blocker.send(b"CMSG blocking/soft/block")
    blocker.all()
    while not blocker.client.queue:
        town.deliver(((blocker.client.fd,), b"MSG x\0" + b"x" * 10_000))
    ann.publish(b"a", b"1")
    ann.publish(b"b", b"2")
    town.settle()
    assert ann.client.published == 0
    town.reload(rules=[Rule(uid=ANN.uid, publish=(b"b",))])
    packets = blocker.all() + blocker.all()
    assert refusals(ann.all()) == [(b"not_permitted", b"a")]
    assert messages(packets, b"a") == []
    assert messages(packets, b"b") == [b"2"]
    assert town.bus.counters.published == 2
