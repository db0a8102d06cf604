"""Which of the requests that wait an answer or a refusal is for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.client.event_queues import Refusal
from bccnd.client.outgoing import PendingRequests, Request
from bccnd.core.wire import frames

KEYS = (frames.WHOAMI, frames.STATS, frames.TAG, frames.SYNC)


def waiting(*asked: tuple[bytes, bytes]) -> tuple[PendingRequests, list[Request]]:
    pending = PendingRequests()
    requests = [Request(pending.append, key, payload) for key, payload in asked]
    for one in requests:
        one.sent()
    return pending, requests


@given(st.lists(st.tuples(st.sampled_from(KEYS[:3]), st.just(b"")), max_size=6), st.sampled_from(KEYS[:3]))
def test_an_answer_is_for_the_first_request_of_its_key(asked: list[tuple[bytes, bytes]], key: bytes) -> None:
    pending, requests = waiting(*asked)
    same = [one for one in requests if one.key == key]
    assert [pending.take_answered(key, b"x") for _ in range(len(same) + 1)] == [*same, None]


def test_a_sync_ends_earlier_requests_without_an_answer() -> None:
    pending, requests = waiting(
        (frames.TAG, b"t"), (frames.WHOAMI, b""), (frames.STATS, b""), (frames.SYNC, b"1"), (frames.SYNC, b"2")
    )
    requests[2].abandoned = True
    had = pending.has_abandoned
    assert pending.take_answered(frames.SYNC, b"3") is None
    assert pending.take_answered(frames.SYNC, b"1") is requests[3]
    assert (had, pending.has_abandoned) == (True, False)
    assert pending.take_answered(frames.STATS, b"") is None
    assert pending.take_answered(frames.WHOAMI, b"") is requests[1]
    pending.settle_all()
    assert [one.lost for one in requests] == [False, False, False, False, True]


def test_a_refusal_is_about_a_key_or_has_a_reason_of_its_own() -> None:
    pending, requests = waiting((frames.WHOAMI, b""), (frames.STATS, b"nothing"), (frames.TAG, b"a b"))
    assert pending.take_refused(Refusal("unknown_listing", "nothing")) is requests[1]
    assert pending.take_refused(Refusal("bad_tag", "a b")) is requests[2]
    assert pending.take_refused(Refusal("not_permitted", "x/y")) is None
    assert pending.take_refused(Refusal("unknown_control", frames.WHOAMI.decode())) is requests[0]
