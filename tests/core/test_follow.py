"""One message among others: which one is meant, and what the trackers know of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import bccn1
from bccnd.core.dedup import DedupRules, Sources
from bccnd.core.follow import AWAITED, Wanted, claims, neighbours, place
from tests.core.world import OWN, datagram

SRC = b"a/p/1"
RULES = DedupRules(sanity=16, horizon=2.0, deliver_late=True)


def heard(*seqs: int, sweep: float = 0.0) -> Sources:
    """Trackers that have heard these at the time 0, and for which so many seconds have passed since."""
    sources = Sources(RULES)
    for seq in seqs:
        if sources.judge(SRC, seq, 0.0) == -1:
            sources.begin(SRC, seq, 0.0)
    sources.sweep(sweep)
    return sources


@pytest.mark.parametrize(
    ("seqs", "sweep", "seq", "state"),
    [
        ((), 0.0, 5, "unknown"),
        ((5,), 0.0, 6, "ahead"),
        ((5,), 0.0, 5, "heard"),
        ((5,), 0.0, 4, "before"),
        ((5, 8), 0.0, 6, "missing"),
        ((5, 8), 3.0, 6, "lost"),
        ((5, 8, 6), 0.0, 6, "heard"),
        ((5, 6, 15, 25), 0.0, 6, "old"),
        ((5, 6, 15, 25), 0.0, 10, "missing"),
        ((5, 4000), 0.0, 6, "old"),
        ((5, 4000), 0.0, 3999, "before"),
    ],
)
def test_what_the_trackers_know_of_a_message(seqs: tuple[int, ...], sweep: float, seq: int, state: str) -> None:
    found = place(heard(*seqs, sweep=sweep), SRC, seq, 3.5, window=RULES.sanity)
    assert found.state == state
    if seqs:
        assert f"the last seq was {max(seqs)}, 3.5 s ago" in found.finding


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(0, 60))
def test_what_is_called_heard_is_a_copy_and_what_is_not_is_none(seqs: list[int], seq: int) -> None:
    sources = heard(*seqs)
    state = place(sources, SRC, seq, 0.0, window=RULES.sanity).state
    source = sources.get(SRC)
    if source is None:
        assert state == "unknown"
        return
    verdict = sources.foresee(SRC, seq, 0.0)
    assert (state == "heard") == (verdict == 3)
    assert (state == "ahead") == (seq > source.last)


def test_of_our_own_messages_it_is_known_which_were_sent() -> None:
    sources = Sources(RULES)
    own = sources.claim(OWN)
    assert place(sources, OWN, 5, 0.0, window=16).state == "ahead"
    own.first, own.next = 5, 8
    states = [place(sources, OWN, seq, 0.0, window=16).state for seq in (4, 5, 7, 8)]
    assert states == ["unknown", "ours", "ours", "ahead"]
    assert "the last one was 7" in place(sources, OWN, 8, 0.0, window=16).finding


def test_neighbours_are_told_of_who_is_known() -> None:
    assert neighbours(heard(), SRC, 5, window=16) == {}
    assert neighbours(heard(5, 7), SRC, 6, window=16) == {5: "heard", 7: "heard"}
    assert neighbours(heard(0), SRC, 0, window=16) == {1: "ahead"}


def test_only_where_it_may_come_it_is_waited_for() -> None:
    assert {"unknown", "ahead", "missing"} == AWAITED


# -- which one


def test_the_next_one_of_anybody_below_is_the_only_one_from_then_on() -> None:
    wanted = Wanted(b"a/*")
    assert not wanted.found
    assert not wanted.take(b"ab/p/1", 1)
    assert not wanted.take(b"a", 1)
    assert wanted.take(b"a/p/1", 7)
    assert (wanted.src, wanted.seq, wanted.found) == (b"a/p/1", 7, True)
    assert wanted.take(b"a/p/1", 7)
    assert not wanted.take(b"a/p/1", 8)
    assert not wanted.take(b"a/p/2", 7)


def test_one_with_a_seq_is_that_one() -> None:
    wanted = Wanted(SRC, 7)
    assert not wanted.take(SRC, 6)
    assert wanted.take(SRC, 7)


@pytest.mark.parametrize(
    ("src", "seq"), [(b"", 1), (b"a b", 1), (b"?", 1), (b"a", -1), (b"a", 1 << 64), (b"x" * 129, 1)]
)
def test_nobody_is_followed_who_cannot_be(src: bytes, seq: int) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        Wanted(src, seq)


@given(st.sampled_from([b"a/p/1", b"a/p/11", b"b/p/1"]), st.integers(0, 9), st.binary(max_size=20))
def test_a_quick_look_never_misses_it(src: bytes, seq: int, payload: bytes) -> None:
    raw = datagram(src, seq, b"c", payload)
    said = claims(raw)
    assert said == (src, seq, b"c", payload)
    for wanted in (Wanted(SRC, 5), Wanted(b"a/*"), Wanted(SRC)):
        if wanted.take(src, seq):
            assert wanted.may_be(raw)


def test_it_is_known_by_what_it_claims_even_if_that_is_not_so() -> None:
    forged = bccn1.build(b"a/p/1:5:c|x", b"hmac=0000000000000000")
    assert claims(forged) == (SRC, 5, b"c", b"x")
    for noise in (b"", b"noise", b"BCCN1[99]a/p/1:5:c|x", b"BCCN2[11]a/p/1:5:c|x", b"BCCN1[9]a/p/1:c|x"):
        assert claims(noise) is None
