"""Datagrams without a sender's name: what is a duplicate of what, and how much is remembered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, NAMES
from tests.core.material import examples
from tests.rules import dedup_rules


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), max_size=80), st.integers(1, 5))
@examples(400)
def test_a_flood_of_nameless_ones_is_capped_and_only_forgets(history: list[tuple[int, int]], cap: int) -> None:
    anonymous = AnonymousDedup(dedup_rules(), cap=cap)
    accepted: dict[int, float] = {}
    now = 1000.0
    for number, quarters in history:
        now += quarters / 4
        body = b"?:1:c|%d" % number
        foreseen = anonymous.predict("10.0.0.1:1", body, now)
        verdict = anonymous.judge("10.0.0.1:1", body, now)
        assert NAMES[foreseen] == NAMES[verdict]
        assert len(anonymous.accepted()) <= 2 * cap
        if verdict == DUPLICATE:
            # To forget means to deliver twice, never to lose a message.
            assert now - accepted[number] <= 2.0
        elif number in accepted and now - accepted[number] <= 2.0:
            assert anonymous.counted["evicted"] > 0
        if verdict == ACCEPTED:
            accepted[number] = now


def test_one_that_waited_in_a_link_makes_nothing_forgotten() -> None:
    anonymous = AnonymousDedup(dedup_rules(), cap=2)
    for number in range(2):
        anonymous.judge("10.0.0.1:1", b"?:1:c|%d" % number, 1000.0)
    anonymous.judge("link", b"?:1:c|2", 970.0)
    assert NAMES[anonymous.judge("10.0.0.1:1", b"?:1:c|1", 1000.5)] == "duplicate"
    assert anonymous.counted["evicted"] == 0


def test_the_last_ones_are_known_to_the_next_daemon_too() -> None:
    anonymous = AnonymousDedup(dedup_rules(), cap=4)
    for number in range(100):
        assert anonymous.judge("10.0.0.1:1", b"%d" % number, 10.0) == ACCEPTED
        for recent in range(max(0, number - 3), number + 1):
            assert anonymous.judge("10.0.0.1:1", b"%d" % recent, 10.0) == DUPLICATE
    # 100 were let in, and two generations of 4 are the most that is held.
    assert 92 <= anonymous.counted["evicted"] < 100
    after = AnonymousDedup(dedup_rules(), cap=4)
    after.resume(anonymous.accepted())
    assert after.accepted() == anonymous.accepted()
    # The next one makes the older generation forgotten.
    known = [after.predict("10.0.0.1:1", b"%d" % number, 11.0) == DUPLICATE for number in range(90, 100)]
    assert known == [False] * 6 + [True] * 4
