"""The session by itself, and both clients with a scripted daemon that comes and goes."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bccnd
from bccnd.client.bus import Connection
from bccnd.client.event_queues import Away, Event, Gap, Reconnected, Refusal
from bccnd.client.message import Message
from bccnd.client.outgoing import Outgoing, PendingRequests, Request
from bccnd.client.session import LONGEST, SHORTEST, Session
from bccnd.client.session import PATIENCE as PATIENCE_OF_SESSION
from bccnd.client.transport import dial
from bccnd.core.formats.bus_address import write_address
from bccnd.core.wire import frames
from bccnd.errors import BadFrame
from tests.client.sessions import BATCH, META, Bare, Join, batch, both, frame, impatient, restarted, without_syncs
from tests.endpoint.segments import soon
from tests.refusals import refused
from tests.support import PATIENCE, wait

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


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


def test_an_answer_that_never_comes_is_not_expected_after_a_sync() -> None:
    session = Session()
    ask(session, frames.STATS, b"clients").abandoned = True
    marker, request = session.request(frames.STATS, b"daemon")
    assert marker.key == frames.SYNC
    sent(session, [marker, request])
    reads(session, marker.frame, frames.control(frames.STATS, b"the daemon"))
    assert request.answer == b"the daemon"
    assert len(session.request(frames.STATS)) == 1


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


# -- either client, and a daemon that comes and goes


@both
def test_an_absence_can_be_an_event_and_is_logged(bare: Bare, join: Join, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "bccnd.client"), join(bare.address, away=True) as bus:
        bus.subscribe("a")
        bus.sync()
        there = [bus.connected]
        bare.stop()
        event = bus.receive(PATIENCE)
        assert isinstance(event, Away)
        assert event.reason
        assert bus.receive(0.05) is None
        there.append(bus.connected)
        bare.start()
        assert isinstance(bus.receive(PATIENCE), Reconnected)
        assert bus.sync() == []
        there.append(bus.connected)
        bare.send(frames.gap(3), frames.error("bad_channel", b"x"))
        assert [bus.receive(PATIENCE), bus.receive(PATIENCE)] == [Gap(3), Refusal("bad_channel", "x")]
    there.append(bus.connected)
    assert there == [True, False, True, False]
    levels = [record.levelname for record in caplog.records if record.name == "bccnd.client"]
    assert levels == ["WARNING", "INFO", "WARNING", "WARNING"]


@both
def test_connecting_waits_for_a_daemon_if_asked_to(join: Join, tmp_path: Path) -> None:
    path = str(tmp_path / "bus.sock")
    with refused("no_daemon"):
        join(path, wait=0.05)
    made: list[Bare] = []
    for patience in (PATIENCE, None):
        with soon(lambda: made.append(Bare(path))), join(path, wait=patience) as bus:
            bus.sync()
        made.pop().close()


def test_modes_are_said_at_once_and_to_the_next_daemon(bare: Bare, bus: Connection) -> None:
    bus.subscribe("a", "b/", "a")
    bus.tag("door")
    bus.blocking()
    for on in (True, False):
        bus.echo(on)
    for soft in ("queue", "discard", "error", "block"):
        bus.blocking(soft=soft)
    for hard in ("block", "error", "discard"):
        bus.blocking(hard=hard)
    for order in ("queue", "random", "stack"):
        bus.order(order)
    for wrong in (("never", None), (None, "queue"), ("block", "never")):
        with refused("bad_mode"):
            bus.blocking(*wrong)
    with refused("bad_mode"):
        bus.order("up")
    bus.local(True)
    bus.unsubscribe("b/")
    bus.sync()
    assert without_syncs(bare.received[0])[6:] == [
        *(b"CMSG echo/on", b"CMSG echo/off"),
        *(b"CMSG blocking/soft/" + mode for mode in (b"queue", b"discard", b"error", b"block")),
        *(b"CMSG blocking/hard/" + mode for mode in (b"block", b"error", b"discard")),
        *(b"CMSG order/" + order for order in (b"queue", b"random", b"stack")),
        *(b"CMSG !/bccn/local/on", b"UNSUB b/"),
    ]
    bare.restart()
    bus.publish("a", "after")
    bus.sync()
    held = [
        *(META, b"CMSG !/bccn/tag\0door", BATCH, b"CMSG echo/off", b"CMSG blocking/soft/block"),
        *(b"CMSG blocking/hard/discard", b"CMSG order/stack", b"CMSG !/bccn/local/on", b"SUB a", b"SUB a"),
    ]
    assert without_syncs(bare.received[1]) == [*held, b"MSG a\0after"]
    assert bare.received[1].index(b"MSG a\0after") == len(held) + 1  # only when the daemon has said that it is there


@both
def test_batches_are_asked_for_unless_they_are_declined(bare: Bare, join: Join) -> None:
    with join(bare.address, batch=False) as bus:
        for wanted, mode in ((None, []), (True, [BATCH]), (False, [b"CMSG !/bccn/batch/off"])):
            if wanted is not None:
                bus.batch(wanted)
            restarted(bare, bus)
            assert without_syncs(bare.received[-1]) == [META, *mode]


@both
def test_asking_keeps_what_comes_before_the_answer(bare: Bare, join: Join) -> None:
    numbers = [b"%d" % number for number in range(103)]
    bare.answers[b"SUB a"] = [*(frame(b"a", number) for number in numbers[:50]), batch(*numbers[50:100])]
    whoami = frames.control(frames.WHOAMI, b"me")
    bare.answers[b"CMSG !/bccn/whoami"] = [batch(*numbers[100:102]), whoami, batch(numbers[102])]
    with join(bare.address) as bus:
        bus.subscribe("a")
        first = bus.receive(PATIENCE)
        assert bus.identity() == "me"  # in the middle of a batch
        assert bus.sync() == []
        found = iter(bus)
        got = [first, *(next(found) for _ in range(102))]
        assert [one.payload for one in got if isinstance(one, Message)] == numbers


def test_as_much_as_a_packet_holds_is_taken_from_one(bare: Bare, bus: Connection) -> None:
    many = [frames.message(b"", b"")] * 7000
    large = [frame(b"a", b"x" * 1000)] * 300  # more than the daemon makes, less than a packet may have
    bus.sync()
    bare.last.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    bare.send(frames.batch(many), frames.batch(large), frame(b"end"))
    found = iter(bus)
    got = [next(found) for _ in range(7300)]
    assert {one.chan for one in got[:7000]} == {""}
    assert {one.payload for one in got[7000:]} == {b"x" * 1000}
    assert next(found).chan == "end"


@both
def test_a_daemon_that_knows_no_batches_is_used_without(bare: Bare, join: Join) -> None:
    bare.answers[BATCH] = [frames.error("unknown_control", frames.BATCH_ON)]
    bare.answers[b"SUB a"] = [frame(b"a", b"1")]
    with join(bare.address) as bus:
        bus.subscribe("a")
        got = bus.receive(PATIENCE)
        assert isinstance(got, Message)
        assert got.payload == b"1"
        assert bus.sync() == []


def test_a_mode_that_is_refused_is_not_asked_for_again(bare: Bare, bus: Connection) -> None:
    bare.answers[b"CMSG !/bccn/tag\0two words"] = [frames.error("bad_tag", b"two words")]
    bare.answers[b"CMSG !/bccn/tag\0mine"] = [frames.error("not_permitted", frames.TAG)]
    bare.answers[b"CMSG !/bccn/local/on"] = [frames.error("unknown_control", b"!/bccn/local/on")]
    bus.tag("fine")
    for tag, reason in (("two words", "bad_tag"), ("mine", "not_permitted")):
        with refused(reason):
            bus.tag(tag)
    with refused("unknown_control"):
        bus.local(True)
    assert bus.sync() == []
    for held in ([META, b"CMSG !/bccn/tag\0fine", BATCH], [META, BATCH]):
        restarted(bare, bus)
        assert without_syncs(bare.received[-1]) == held
        bus.tag("")


@both
def test_iterating_raises_what_was_refused_in_its_place(
    bare: Bare, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.answers[b"SUB a"] = [frame(b"b", b"1"), frames.error("not_permitted", b"a"), frame(b"b", b"2")]
    with join(bare.address) as bus:
        bus.subscribe("a")
        assert next(iter(bus)).payload == b"1"
        with refused("not_permitted", "'a'"):
            next(iter(bus))
        assert next(iter(bus)).payload == b"2"
    monkeypatch.setattr("bccnd.client.session.LONGEST", 0.02)
    bare.refuses = frames.error("too_many_clients", b"")
    with join(bare.address) as bus, refused("too_many_clients", "does not serve"):
        next(iter(bus))


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_a_timeout_holds_while_the_daemon_is_away(bare: Bare, bus: Connection, timeout: float) -> None:
    bus.sync()
    bare.stop()
    before = time.monotonic()
    assert bus.receive(timeout) is None
    assert bus.receive(timeout) is None
    assert time.monotonic() - before >= 2 * timeout
    bare.start()
    wait(lambda: isinstance(bus.receive(timeout), Reconnected), "the daemon")


def test_a_sync_tells_of_a_daemon_that_went_unconfirmed(bare: Bare, bus: Connection) -> None:
    bus.publish("a", "confirmed")
    bus.sync()
    bare.restart()
    assert bus.sync() == []
    bus.publish("a", "not confirmed")
    bare.heard(b"MSG a\0not confirmed")
    bare.restart()
    with refused("connection_lost"):
        bus.sync()
    bus.publish("a", "after")
    assert bus.sync() == []
    assert without_syncs(bare.received[2])[2:] == [b"MSG a\0after"]  # what a daemon has taken is not sent to the next


def test_sending_waits_for_the_daemon_but_not_for_ever(
    bare: Bare, bus: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    bus.subscribe("a")
    bus.sync()
    bare.stop()
    calls: list[Callable[[], object]] = [
        *(lambda: bus.publish("a"), lambda: bus.echo(True), lambda: bus.sync(0.1)),
        lambda: bus.ask(frames.WHOAMI, timeout=0.1),
    ]
    for call in calls:
        with refused("connection_lost", bare.address):
            call()
    bare.start()
    assert isinstance(bus.receive(PATIENCE), Reconnected)
    bus.sync()
    assert without_syncs(bare.received[1]) == [META, BATCH, b"SUB a"]  # what has failed was not done


def test_a_question_is_asked_again_when_its_daemon_goes_away(bare: Bare, bus: Connection) -> None:
    bus.sync()

    def go_away() -> None:
        bare.heard(b"CMSG !/bccn/whoami")
        bare.answers[b"CMSG !/bccn/whoami"] = [frames.control(frames.WHOAMI, b"me")]
        bare.restart()

    with soon(go_away):
        assert bus.identity() == "me"


class Ending(socket.socket):
    """A socket whose connection is closed by a signal handler when a call is about to wait for it."""

    end: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        type(self).end()
        return super().fileno()


def test_a_call_is_told_when_a_signal_handler_closes(bare: Bare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.client.transport.dial", lambda address: Ending(fileno=dial(address).detach()))
    bus = bccnd.connect(str(bare.address))
    monkeypatch.setattr(Ending, "end", bus.close)
    with refused("connection_lost"):
        bus.receive(PATIENCE)


def test_what_cannot_be_sent_is_refused_here(bare: Bare, bus: Connection) -> None:
    bus.subscribe("a")
    calls: list[tuple[str, str, Callable[[], object]]] = [
        ("bad_pattern", "NUL", lambda: bus.subscribe("b", "\0x")),
        ("bad_pattern", "NUL", lambda: bus.unsubscribe("a", "a\0x")),
        ("bad_pattern", "NUL", lambda: bus.listen("\0x", print)),
        ("bad_pattern", "NUL", lambda: bus.respond("a\0", lambda _question: None)),
        ("bad_channel", "NUL", lambda: bus.publish("a\0b")),
        ("bad_channel", "NUL", lambda: bus.send_to("relay01/\0", "x")),
        ("bad_channel", "NUL", lambda: bus.request("a\0b", timeout=0.1)),
        ("unknown_control", "NUL", lambda: bus.ask("!/bccn/stats\0clients", timeout=0.1)),
        ("too_long", "", lambda: bus.publish("a", b"x" * (4 << 20))),
        ("bad_target", "", lambda: bus.send_to("")),
    ]
    for reason, detail, call in calls:
        with refused(reason, detail):
            call()
    for number in range(2):
        bus.sync()
        assert without_syncs(bare.received[number]) == [META, BATCH, b"SUB a"]
        restarted(bare, bus)


def test_much_can_be_restored_while_much_comes(bare: Bare, bus: Connection) -> None:
    patterns = [f"{number:04}/{'x' * 200}" for number in range(2000)]
    bus.subscribe(*patterns)
    bus.sync()
    bare.answers = {b"SUB " + pattern.encode(): [frame(b"a", b"y" * 1000)] for pattern in patterns}
    restarted(bare, bus)
    assert all(isinstance(bus.receive(PATIENCE), Message) for _ in patterns)
    assert without_syncs(bare.received[1])[2:] == [b"SUB " + pattern.encode() for pattern in patterns]


@both
@pytest.mark.parametrize("noise", [b"GET / HTTP/1.0", batch(b"x", b"y")[:-1]])
def test_what_speaks_no_frames_is_no_daemon(bare: Bare, join: Join, noise: bytes) -> None:
    with join(bare.address) as bus:
        bus.sync()
        bare.send(frame(b"a", b"1"), noise, frame(b"a", b"2"))
        assert [type(bus.receive(PATIENCE)) for _ in range(2)] == [Message, Reconnected]
    with join(bare.address, reconnect=False) as bus:
        bus.sync()
        bare.send(noise)
        with refused("connection_lost", "no frame"):
            bus.receive(PATIENCE)


@both
def test_without_reconnecting_a_loss_ends_after_what_came(bare: Bare, join: Join) -> None:
    with join(bare.address, reconnect=False) as bus:
        bus.sync()
        bare.send(frame(b"a", b"1"), batch(b"2", b"3"))
        bare.restart()
        for _ in range(2):
            with refused("connection_lost"):
                bus.publish("a")
        events = [bus.receive() for _ in range(3)]
        assert [event.payload for event in events if isinstance(event, Message)] == [b"1", b"2", b"3"]
        calls: list[Callable[[], object]] = [
            *(bus.receive, lambda: bus.receive(0), bus.sync, bus.identity, lambda: next(iter(bus))),
            *(lambda: bus.subscribe("a"), lambda: bus.unsubscribe("a")),
        ]
        for call in calls:
            with refused("connection_lost"):
                call()
        assert len(bare.received) == 1


@both
def test_an_abstract_address_can_be_named_or_written_out(join: Join, tmp_path: Path) -> None:
    name = f"bccnd-test-{os.getpid()}-{tmp_path.name}"
    full = f"\0bccnd-test-{os.getpid()}".encode().ljust(108, b"\0")
    for address, text in ((f"\0{name}".encode(), f"@{name}"), (full, write_address(full))):
        with Bare(address) as bare, join(text) as bus:
            bus.sync()
            restarted(bare, bus)


@both
def test_what_is_no_address_of_a_daemon_is_said_to_be_so(join: Join, tmp_path: Path) -> None:
    for path in ("@", "/dev/fd/3", "/dev/unix/abstract/xyz", "/dev/unix/abstract/41", "a\0b"):
        with refused("bad_address"):
            join(path)
    nowhere, dead = tmp_path / "nowhere.sock", tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(dead))
    for path, why in ((nowhere, "No such file"), (dead, "refused"), (tmp_path / ("x" * 200), "long")):
        with refused("no_daemon", f"{path}", why):
            join(str(path))


@both
def test_a_client_that_finds_the_backlog_full_waits(join: Join, tmp_path: Path) -> None:
    path = str(tmp_path / "bus.sock")
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(path)
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                opened.enter_context(dial(path))
        with soon(lambda: opened.enter_context(listener.accept()[0])), join(path):
            pass


@both
def test_the_daemon_is_found_again_from_another_directory(
    join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Bare(str(tmp_path / "bus.sock")) as bare, join("bus.sock") as bus:
        bus.sync()
        monkeypatch.chdir("/")
        restarted(bare, bus)
        assert bus.path == "bus.sock"
