"""What passes over a link, what became of what was handed to one, and how old what waits may be."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.bccn1 import FIELD_BYTES, build, build_body, read
from bccnd.core.pattern_tree import PatternTree
from bccnd.core.patterns import DIALECTS, compile_pattern
from bccnd.gateways.links import MAX_KNOWN, Account, Filter, Still, channel, nameless

FIELD = st.text(alphabet=FIELD_BYTES.decode(), min_size=1, max_size=40).map(str.encode)
TOKEN = st.sampled_from(["a", "b", "ab", "heartbeat", "*", ">", "a*", ""])
PATTERN = st.lists(TOKEN, min_size=1, max_size=4).map("/".join)
KEY = st.lists(st.sampled_from(["a", "b", "ab", "abc", "heartbeat"]), min_size=1, max_size=4).map("/".join)


def made(chan: str, src: str = "host/prog/1", check: bytes = b"", payload: bytes = b"x") -> bytes:
    return build(build_body(src.encode(), 7, chan.encode(), payload), check)


# -- what a datagram says


@given(
    src=FIELD,
    chan=FIELD,
    payload=st.binary(max_size=50),
    check=st.sampled_from([b"", b"hmac=0011", b"sig=" + b"f" * 128]),
)
def test_the_channel_is_that_which_the_daemon_reads(src: bytes, chan: bytes, payload: bytes, check: bytes) -> None:
    datagram = build(build_body(src, 1, chan, payload), check)
    assert channel(datagram) == chan
    assert nameless(datagram) == (src == b"?")


def test_the_channel_is_found_in_every_form_and_length_and_nowhere_else() -> None:
    for chan in ("a/b", "!", "!host/prog/1", "x" * 1024):
        datagram = made(chan, src="s" * 128, check=b"sig=" + b"f" * 128)
        assert channel(datagram) == read(datagram).chan
    for datagram in (b"", b"BCCN1", b"BCCN1[3]", b"BCCN1[3]a:b", b"[]|", b"x" * 400 + b"]a:1:b|", b"]a:1:b:c|"):
        assert channel(datagram) == b""


@given(st.binary(max_size=400))
def test_nothing_makes_it_fail(datagram: bytes) -> None:
    assert isinstance(channel(datagram), bytes)
    assert nameless(datagram) in (True, False)


# -- filters


@pytest.mark.parametrize(
    ("patterns", "datagram", "expected"),
    [
        *(([""], datagram, "") for datagram in (made("a/b"), made("!"), b"garbage", b"")),
        ([""], made("a/b", src="?"), "nameless"),
        (["a/"], b"garbage", "malformed"),
        (["a/"], made("a/b"), ""),
        (["a/"], made("b"), "filtered"),
        ([], made("b"), "filtered"),
        # Messages to all and to one pass by a pattern of their own.
        *(
            (patterns, made(chan), expected)
            for chan in ("!", "!host/prog/1")
            for patterns, expected in ((["a/"], "filtered"), (["a/", "!"], ""), (["a/", ""], ""), ([">"], "filtered"))
        ),
        (["a/"], made("heartbeat/host/prog/1"), "filtered"),
        (["a/", "heartbeat/"], made("heartbeat/host/prog/1"), ""),
    ],
)
def test_what_a_filter_refuses(patterns: list[str], datagram: bytes, expected: str) -> None:
    assert Filter(patterns, nameless=False).refuses(datagram) == expected
    if expected == "nameless":
        assert Filter(patterns, nameless=True).refuses(datagram) == ""


@given(st.lists(PATTERN.filter(lambda text: text not in ("", "!")), min_size=1, max_size=4), KEY)
def test_a_filter_matches_what_a_subscription_does(patterns: list[str], key: str) -> None:
    tree: PatternTree[int] = PatternTree(DIALECTS["path"])
    for pattern in patterns:
        tree.add(compile_pattern(pattern.encode(), DIALECTS["path"]), 1)
    expected = "" if tree.match(key.encode()) else "filtered"
    passing = Filter(patterns, nameless=False)
    assert passing.refuses(made(key)) == expected
    assert passing.refuses(made(key)) == expected  # as it remembers


def test_what_is_remembered_is_bounded() -> None:
    passing = Filter(["a/"], nameless=False)
    for number in range(MAX_KNOWN + 10):
        assert passing.refuses(made(f"a/{number}")) == ""
    assert 0 < len(passing._known) <= MAX_KNOWN


# -- what became of what was handed over


class Pipe:
    """NNG's way to a peer: one message on its way, a queue, and what is beyond dropped; the truth about it."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.queue: deque[float] = deque()
        self.handed = self.sent = self.dropped = 0

    def hand(self, now: float) -> None:
        self.handed += 1
        if len(self.queue) > self.room:
            self.dropped += 1
        else:
            self.queue.append(now)

    def take(self, count: int) -> None:
        for _ in range(min(count, len(self.queue))):
            self.queue.popleft()
            self.sent += 1


STEP = st.tuples(st.sampled_from(["hand", "take", "look"]), st.integers(min_value=0, max_value=12))


@given(room=st.integers(min_value=1, max_value=8), steps=st.lists(STEP, max_size=60))
def test_never_more_is_counted_as_dropped_than_was_and_all_of_it_at_the_end(
    room: int, steps: list[tuple[str, int]]
) -> None:
    pipe, account = Pipe(room), Account(room, handed=100)
    told = 0
    for now, (what, count) in enumerate(steps):
        if what == "hand":
            for _ in range(count):
                pipe.hand(float(now))
        elif what == "take":
            pipe.take(count)
        else:
            account.look(100 + pipe.handed, pipe.sent, 0, float(now), idle=not pipe.queue)
            assert told <= account.dropped <= pipe.dropped
            told = account.dropped
    left = len(pipe.queue)
    account.end(100 + pipe.handed, pipe.sent, 3)
    assert account.dropped == pipe.dropped + left
    assert (account.sent, account.received) == (pipe.sent, 3)


def test_what_was_dropped_is_known_once_nothing_moves_any_more() -> None:
    pipe, account = Pipe(4), Account(4, handed=0)
    for _ in range(9):
        pipe.hand(0.0)
    assert pipe.dropped == 4
    account.look(9, 0, 0, 0.0, idle=False)
    assert account.dropped == 4
    pipe.take(2)
    for _ in range(3):  # two find room
        pipe.hand(1.0)
    pipe.take(7)
    account.look(12, 7, 0, 2.0, idle=True)
    account.look(12, 7, 0, 3.0, idle=True)
    assert account.dropped == pipe.dropped == 5


def test_a_peer_that_takes_nothing_is_behind_by_the_time_that_has_passed() -> None:
    account = Account(100, handed=0)
    account.look(10, 0, 0, 1.0, idle=False)
    account.look(20, 0, 0, 2.0, idle=False)
    assert account.behind(2.5) == pytest.approx(1.5)
    account.look(20, 10, 0, 3.0, idle=False)  # what waited at 1.0 has gone, and not what waited at 2.0
    assert account.behind(3.0) == pytest.approx(1.0)
    account.look(20, 20, 0, 4.0, idle=False)
    assert account.behind(9.0) == 0.0


def test_who_takes_too_little_is_behind_as_well() -> None:
    pipe, account = Pipe(1000), Account(1000, handed=0)
    for second in range(10):
        for _ in range(100):
            pipe.hand(float(second))
        pipe.take(50)
        account.look(pipe.handed, pipe.sent, 0, float(second), idle=False)
    oldest = 9.0 - pipe.queue[0]
    assert oldest > 3
    assert oldest - 1 <= account.behind(9.0) <= oldest + 1


def test_who_has_nothing_waiting_is_not_behind_though_something_was_dropped_unseen() -> None:
    account = Account(10, handed=0)
    account.look(15, 12, 0, 0.0, idle=False)  # three of them fell, or wait
    account.look(15, 12, 0, 1.0, idle=True)
    assert account.dropped == 3
    assert account.behind(100.0) == 0.0
    account.look(20, 17, 0, 101.0, idle=False)
    assert (account.dropped, account.behind(200.0)) == (3, 0.0)


# -- how old what waits may be


def test_what_is_found_after_a_pause_may_be_as_old_as_the_pause() -> None:
    still = Still(grace=0.5, room=100, now=0.0)
    still.emptied(10.0)
    assert still.age(10.4) == 0.0
    assert still.age(13.0) == 3.0
    still.emptied(13.0)
    assert still.age(13.1) == 0.0


def test_after_a_pause_it_is_not_believed_at_once_that_there_is_nothing() -> None:
    still = Still(grace=0.5, room=100, now=0.0, doubt=0.5)
    for quarter in range(4):
        still.emptied(quarter * 0.25)
    assert still.age(0.75) == 0.0
    still.emptied(3.0)  # whoever fills it has stood still, too
    assert still.age(3.1) == pytest.approx(2.35)
    still.taken(1, 3.2)
    still.emptied(3.4)
    assert still.age(3.4) == pytest.approx(2.65)
    still.emptied(3.6)
    assert still.age(3.6) == 0.0


def test_but_not_older_than_what_can_wait() -> None:
    still = Still(grace=0.5, room=100, now=0.0)
    for second in range(1, 50):  # 60 a second, never all of them
        still.taken(60, float(second))
    assert 0.5 < still.age(49.0) <= 5.0


@given(st.lists(st.tuples(st.integers(min_value=0, max_value=30), st.integers(min_value=0, max_value=30)), max_size=40))
def test_nothing_is_ever_older_than_what_is_said(steps: list[tuple[int, int]]) -> None:
    room = 20
    still = Still(grace=0.0, room=room, now=0.0)
    waiting: deque[float] = deque()
    for now, (came, taken) in enumerate(steps, start=1):
        for _ in range(came):
            if len(waiting) < room:
                waiting.append(now - 0.5)
        count = min(taken, len(waiting))
        for _ in range(count):
            assert now - waiting.popleft() <= still.age(float(now))
        if waiting:
            still.taken(count, float(now))
        else:
            still.emptied(float(now))
