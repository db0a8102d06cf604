"""Following one message: which one is meant, and what the trackers know of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import bccn1
from bccnd.core.dedup import DedupRules, Sources
from bccnd.core.follow import Wanted, claims, neighbours, place
from bccnd.core.verdicts import DUPLICATE
from tests.core.scenario import receive
from tests.core.world import OWN, datagram

SRC = b"a/p/1"
RULES = DedupRules(sanity=16, horizon=2.0, deliver_late=True)


def heard(*seqs: int, sweep: float = 0.0) -> Sources:
    """Trackers that have heard these at the time 0, swept so many seconds later."""
    sources = Sources(RULES)
    for seq in seqs:
        receive(sources, SRC, seq, 0.0)
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
def test_a_message_is_heard_exactly_if_another_would_be_a_copy(seqs: list[int], seq: int) -> None:
    sources = heard(*seqs)
    state = place(sources, SRC, seq, 0.0, window=RULES.sanity).state
    source = sources.get(SRC)
    if source is None:
        assert state == "unknown"
        return
    verdict = sources.foresee(SRC, seq, 0.0)
    assert (state == "heard") == (verdict == DUPLICATE)
    assert (state == "ahead") == (seq > source.last)


def test_of_our_own_messages_it_is_known_which_were_sent() -> None:
    sources = Sources(RULES)
    own = sources.claim(OWN)
    assert place(sources, OWN, 5, 0.0, window=16).state == "ahead"
    own.first, own.next = 5, 8
    states = [place(sources, OWN, seq, 0.0, window=16).state for seq in (4, 5, 7, 8)]
    assert states == ["unknown", "ours", "ours", "ahead"]
    assert "the last one was 7" in place(sources, OWN, 8, 0.0, window=16).finding


def test_neighbours_of_known_senders() -> None:
    assert neighbours(heard(), SRC, 5, window=16) == {}
    assert neighbours(heard(5, 7), SRC, 6, window=16) == {5: "heard", 7: "heard"}
    assert neighbours(heard(0), SRC, 0, window=16) == {1: "ahead"}


def test_the_first_match_is_the_only_one_from_then_on() -> None:
    wanted = Wanted(b"a/*")
    assert not wanted.found
    assert not wanted.take(b"ab/p/1", 1)
    assert not wanted.take(b"a", 1)
    assert wanted.take(b"a/p/1", 7)
    assert (wanted.src, wanted.seq, wanted.found) == (b"a/p/1", 7, True)
    for src, seq, taken in ((b"a/p/1", 7, True), (b"a/p/1", 8, False), (b"a/p/2", 7, False)):
        assert wanted.take(src, seq) is taken
    exact = Wanted(SRC, 7)
    assert not exact.take(SRC, 6)
    assert exact.take(SRC, 7)


@pytest.mark.parametrize(
    ("src", "seq"), [(b"", 1), (b"a b", 1), (b"?", 1), (b"a", -1), (b"a", 1 << 64), (b"x" * 129, 1)]
)
def test_an_impossible_src_or_seq_is_refused(src: bytes, seq: int) -> None:
    with pytest.raises(ValueError, match=r"[a-z]"):
        Wanted(src, seq)


@given(st.sampled_from([b"a/p/1", b"a/p/11", b"b/p/1"]), st.integers(0, 9), st.binary(max_size=20))
def test_the_quick_look_never_misses_a_match(src: bytes, seq: int, payload: bytes) -> None:
    raw = datagram(src, seq, b"c", payload)
    assert claims(raw) == (src, seq, b"c", payload)
    for wanted in (Wanted(SRC, 5), Wanted(b"a/*"), Wanted(SRC)):
        if wanted.take(src, seq):
            assert wanted.may_be(raw)


def test_a_forged_datagram_claims_what_it_says_and_noise_claims_nothing() -> None:
    assert claims(bccn1.build(b"a/p/1:5:c|x", b"hmac=0000000000000000")) == (SRC, 5, b"c", b"x")
    for noise in (b"", b"noise", b"BCCN1[99]a/p/1:5:c|x", b"BCCN2[11]a/p/1:5:c|x", b"BCCN1[9]a/p/1:c|x"):
        assert claims(noise) is None
