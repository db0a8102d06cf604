"""The session by itself: packets, requests, what waits to be sent, and times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.client.event_queues import Event, Gap, Reconnected, Refusal
from bccnd.client.message import Message
from bccnd.client.outgoing import Outgoing, PendingRequests, Request
from bccnd.client.session import LONGEST, SHORTEST, Session
from bccnd.client.session import PATIENCE as PATIENCE_OF_SESSION
from bccnd.core.wire import frames
from bccnd.errors import BadFrame
from tests.client.sessions import BATCH, META, batch, frame
from tests.refusals import refused


def reads(session: Session, *packets: bytes, now: float = 1.0) -> None:
    for packet in packets:
        session.feed(packet, now, 77)


def lose(session: Session, now: float) -> None:
    session.disconnected("gone", now, now, 1.0)


def reconnect(session: Session) -> list[bytes]:
    """What is sent over a new connection."""
    session.connected()
    return list(session.data_to_send())


def held(session: Session) -> list[bytes]:
    """What is sent over a new connection, between the first frame and the last, which is a sync."""
    lose(session, 1.0)
    *asked, last = reconnect(session)
    meta, batches, *sent = asked
    assert (meta, batches) == (META, BATCH)
    assert last.startswith(b"CMSG !/bccn/sync\0")
    return sent


#: what would be a sender, on a key that has one
FORGED = b"root/x/1:5:6:local|forged"


@pytest.mark.parametrize(
    ("packet", "events"),
    [
        (frame(b"a/b", b"x|y"), [Message("relay02/x/7", 5, "a/b", b"x|y", "plain", "local", 6)]),
        (b"MSG two words\0" + FORGED, [Message("", 0, "two words", FORGED, "plain", "local", 77)]),
        (b"MSG !/app/x\0" + FORGED, [Message("", 0, "!/app/x", FORGED, "plain", "local", 77)]),
        (frame(b"!"), [Message("relay02/x/7", 5, "!", b"", "all", "local", 6)]),
        (frame(b"!relay01/*"), [Message("relay02/x/7", 5, "!relay01/*", b"", "directed", "local", 6)]),
        (b"MSG a\0x", [Message("", 0, "a", b"x", "plain", "local", 77)]),
        (b"MSG !a//b\0x", [Message("", 0, "!a//b", b"x", "directed", "local", 77)]),
        (b"MSG " + b"a" * 1025 + b"\0a:1:2:b|x", [Message("", 0, "a" * 1025, b"a:1:2:b|x", "plain", "local", 77)]),
        (b"MSG !" + b"a" * 1025 + b"\0x", [Message("", 0, "!" + "a" * 1025, b"x", "directed", "local", 77)]),
        (
            frames.batch([frame(b"a/b", b"1"), b"MSG !/app/x\0\0x", frame(b"!", b"2")]),
            [
                Message("relay02/x/7", 5, "a/b", b"1", "plain", "local", 6),
                Message("", 0, "!/app/x", b"\0x", "plain", "local", 77),
                Message("relay02/x/7", 5, "!", b"2", "all", "local", 6),
            ],
        ),
        (frames.gap(3), [Gap(3)]),
        (frames.error("bad_channel", b"two words"), [Refusal("bad_channel", "two words")]),
        (frames.error("bad_channel", b"\xff"), [Refusal("bad_channel", "\udcff")]),
        (frames.error("too_many_clients", b""), [Refusal("too_many_clients", "")]),
        (b"CMSG !/bccn/sync\0an answer to nobody", []),
        (b"CMSG something new", []),
    ],
)
def test_a_packet_is_an_event_or_an_answer(packet: bytes, events: list[Event]) -> None:
    session = Session()
    reads(session, packet)
    assert list(session.events) == events


@pytest.mark.parametrize(
    "packet",
    [
        *(b"x", b"MSG a", b"HELLO a", b"CMSG !/bccn/gap", b"CMSG !/bccn/gap\0-1", b"CMSG !/bccn/gap\0" + b"9" * 5000),
        *(b"MSGS ", b"MSGS 3\0" + batch(b"1", b"2")[7:], batch(b"1", b"2") + b"\0", batch(b"1", b"2")[:-1]),
        *(frames.batch([frame(b"a"), frames.gap(3)]), frames.batch([frame(b"a"), batch(b"1")])),
    ],
)
def test_what_is_no_frame_is_an_error(packet: bytes) -> None:
    session = Session()
    with pytest.raises(BadFrame):
        reads(session, packet)
    assert not session.events


# -- the session: requests


def sent(session: Session, requests: list[Request]) -> Request:
    """Send requests; returns the last one."""
    for one in requests:
        session.enqueue(one, 0.0)
    assert list(session.data_to_send()) == [one.frame for one in requests]
    return requests[-1]


def ask(session: Session, key: bytes, payload: bytes | None = None) -> Request:
    return sent(session, session.request(key, payload))


def test_a_sync_confirms_what_was_published() -> None:
    session = Session()

    session.published()
    reads(session, sent(session, [session.sync()]).frame)
    session.check_confirmed()
    early = sent(session, [session.sync()])
    session.published()
    reads(session, early.frame)
    lose(session, 3.0)
    with refused("connection_lost"):
        session.check_confirmed()  # what came after the request was not confirmed
    session.check_confirmed()  # raised once


# -- which of the requests that wait an answer or a refusal is for


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


def test_an_answer_that_never_comes_is_not_expected_after_a_sync() -> None:
    session = Session()
    ask(session, frames.STATS, b"clients").abandoned = True
    marker, request = session.request(frames.STATS, b"daemon")
    sent(session, [marker, request])
    reads(session, marker.frame, frames.control(frames.STATS, b"the daemon"))
    assert request.answer == b"the daemon"
    assert len(session.request(frames.STATS)) == 1


def test_a_refusal_is_about_a_key_or_has_a_reason_of_its_own() -> None:
    pending, requests = waiting((frames.WHOAMI, b""), (frames.STATS, b"nothing"), (frames.TAG, b"a b"))
    assert pending.take_refused(Refusal("unknown_listing", "nothing")) is requests[1]
    assert pending.take_refused(Refusal("bad_tag", "a b")) is requests[2]
    assert pending.take_refused(Refusal("not_permitted", "x/y")) is None
    assert pending.take_refused(Refusal("unknown_control", frames.WHOAMI.decode())) is requests[0]


# -- the session: sending, times, and losing the daemon


def test_a_frame_that_the_socket_does_not_take_comes_again() -> None:
    session = Session()
    taken: list[bytes] = []
    for frame_ in (b"1", b"2", b"3"):
        session.enqueue(Outgoing(frame_, lambda one=frame_: taken.append(one)), 0.0)  # type: ignore[misc]
    data = session.data_to_send()
    assert [next(data), next(data)] == [b"1", b"2"]
    data.close()  # the second was not taken
    assert taken == [b"1"]
    assert list(session.data_to_send()) == [b"2", b"3"]
    assert taken == [b"1", b"2", b"3"]
    assert not session.has_data


def test_what_waits_for_a_daemon_fails_unless_it_is_patient() -> None:
    session = Session()
    early, patient = Outgoing(b"early"), Outgoing(b"patient", patient=True)
    session.enqueue(early, 0.0)
    session.enqueue(patient, 0.0)
    lose(session, 10.0)
    late = Outgoing(b"late")
    session.enqueue(late, 11.0)
    assert not session.may_connect(10.0)
    assert session.may_connect(10.0 + SHORTEST)
    session.connected()
    assert session.next_timeout(10.0) == PATIENCE_OF_SESSION
    session.expire(10.0 + PATIENCE_OF_SESSION)
    assert session.next_timeout(15.5) == pytest.approx(0.5)
    assert (early.error is not None, patient.done, late.done) == (True, False, False)
    reads(session, list(session.data_to_send())[-1])
    assert session.next_timeout(20.0) is None
    assert list(session.data_to_send()) == [b"patient", b"late"]


def test_changes_of_patterns_are_undone_by_their_opposite() -> None:
    session = Session()
    session.connected()
    list(session.data_to_send())
    for pattern, wanted in ((b"a", True), (b"a", True), (b"b", True), (b"b", False), (b"never", False)):
        session.change(pattern, wanted=wanted)
    assert list(session.data_to_send()) == [b"SUB a"]
    session.change(b"a", wanted=False)
    session.change(b"a", wanted=True)
    assert not session.has_data
    session.ask_again(b"a")
    session.ask_again(b"b")
    assert list(session.data_to_send()) == [b"SUB a"]
    session.change(b"c", wanted=True)
    assert held(session) == [b"SUB a", b"SUB c"]


def test_failed_attempts_are_one_absence() -> None:
    session = Session()
    lose(session, 1.0)
    reconnect(session)
    lose(session, 2.0)
    last = reconnect(session)[-1]
    reads(session, frames.error("not_permitted", b"a"), now=2.0)
    assert not session.events
    reads(session, last, now=9.0)
    assert list(session.events) == [Reconnected(8.0), Refusal("not_permitted", "a")]


@pytest.mark.parametrize("reason", ["too_many_clients", "too_many_clients_of_user", "not_admitted"])
def test_a_client_that_is_not_served_waits_longer(reason: str) -> None:
    session = Session()
    lose(session, 1.0)
    for _ in range(3):
        reconnect(session)
        reads(session, frames.error(reason, b""), now=2.0)
        lose(session, 2.0)
        assert session.refused_by == reason
        assert session.next_timeout(2.0) == LONGEST
    assert list(session.events) == [Refusal(reason, "")]
    reads(session, reconnect(session)[-1], now=9.0)
    assert list(session.events) == [Refusal(reason, ""), Reconnected(8.0)]
    assert not session.refused_by


def test_attempts_come_ever_more_slowly_until_one_succeeds() -> None:
    session = Session()
    lose(session, 0.0)
    pauses = [session.next_timeout(0.0)]
    for jitter in (*[1.0] * 7, 0.0):
        session.connect_failed("no", 0.0, jitter)
        pauses.append(session.next_timeout(0.0))
    assert pauses == [SHORTEST * 2**n for n in range(6)] + [LONGEST, LONGEST, LONGEST / 2]
    reads(session, reconnect(session)[-1])
    lose(session, 0.0)
    assert session.next_timeout(0.0) == SHORTEST
