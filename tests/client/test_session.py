"""The session by itself, and both clients with a scripted daemon that comes and goes."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bccnd.client.bus import Connection, connect
from bccnd.client.message import Message
from bccnd.client.session import LONGEST, SHORTEST, Event, Gap, Question, Reconnected, Refusal, Session
from bccnd.client.transport import dial
from bccnd.core import frames
from bccnd.core.address import write_address
from bccnd.errors import BadFrame, BusError
from tests.client.sessions import BATCH, META, Bare, Driven, Join, batch, both, frame, impatient, without_syncs
from tests.refusals import refused
from tests.support import PATIENCE, wait


def reads(session: Session, *packets: bytes, now: float = 1.0) -> None:
    for packet in packets:
        session.read(packet, now, 77)


def held(session: Session) -> list[bytes]:
    """What is said to the next daemon, between the first word and the last, which is asked for an echo."""
    first, *said, last = session.greeting()
    assert first == META
    assert last.startswith(b"CMSG !/bccn/sync\0")
    return said


def test_every_subscription_is_restored_as_often_as_it_is_held() -> None:
    session = Session()
    for pattern in (b"a", b"b/", b"a", b"", b"a", b"c"):
        session.subscribed(pattern)
    for pattern in (b"a", b"c", b"never held"):
        session.unsubscribed(pattern)
    assert held(session) == [b"SUB a", b"SUB a", b"SUB b/", b"SUB "]
    session.unsubscribed(b"c")  # less than nothing is nothing
    session.subscribed(b"c")
    assert held(session) == [b"SUB a", b"SUB a", b"SUB b/", b"SUB ", b"SUB c"]


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
        *(
            b"MSGS ",
            b"MSGS 0\0",
            b"MSGS 3\0" + batch(b"1", b"2")[7:],
            batch(b"1", b"2") + b"\0",
            batch(b"1", b"2")[:-1],
        ),
        frames.batch([frame(b"a"), frames.gap(3)]),
        frames.batch([frame(b"a"), batch(b"1")]),
    ],
)
def test_what_is_no_frame_is_an_error_and_nothing_of_it_is_taken(packet: bytes) -> None:
    session = Session()
    with pytest.raises(BadFrame):
        reads(session, packet)
    assert not session.events


def test_what_is_missing_counts_once_it_was_taken() -> None:
    session = Session()
    reads(session, frames.gap(3))
    session.lose(1.0)
    reads(session, batch(b"1", b"2"), now=2.5)  # a sign that a daemon serves us again
    reads(session, frames.gap(4), now=3.0)
    assert (session.missed, session.reconnects) == (0, 0)
    assert [session.take(), session.take()] == [Gap(3), Reconnected(1.5)]
    assert (session.missed, session.reconnects, len(session.events)) == (3, 1, 3)
    assert [session.take() for _ in range(3)][2] == Gap(4)
    assert session.missed == 7


# -- the session: questions


def ask(session: Session, key: bytes, payload: bytes | None = None) -> Question:
    questions = session.before(Question(key, payload))
    for question in questions:
        session.asked(question)
    return questions[-1]


def test_answers_go_to_the_first_question() -> None:
    session = Session()
    one, other, third = ask(session, b"x"), ask(session, b"y"), ask(session, b"x")
    for key, payload in ((b"x", b"1"), (b"x", b"2"), (b"y", b"3"), (b"y", b"4")):
        reads(session, frames.control(key, payload))
    assert [one.result(), third.result(), other.result()] == [b"1", b"2", b"3"]
    assert not session.events


def test_a_late_answer_or_refusal_goes_to_the_question_that_was_given_up() -> None:
    session = Session()
    late = ask(session, frames.STATS, b"clients")
    late.abandoned = True
    question = ask(session, frames.STATS, b"daemon")
    reads(session, frames.control(frames.STATS, b"the clients"), frames.control(frames.STATS, b"the daemon"))
    assert question.result() == b"the daemon"
    assert not session.events
    ask(session, b"x").abandoned = True
    reads(session, frames.error("unknown_control", b"x"))
    assert list(session.events) == [Refusal("unknown_control", "x")]


def test_an_answer_that_never_comes_is_not_expected_after_a_sync() -> None:
    session = Session()
    dropped = Question(frames.STATS, b"clients")
    session.asked(dropped)
    dropped.abandoned = True
    marker, question = session.before(Question(frames.STATS, b"daemon"))
    assert marker.key == frames.SYNC
    session.asked(marker)
    session.asked(question)
    reads(session, marker.frame)
    reads(session, frames.control(frames.STATS, b"the daemon"))
    assert question.result() == b"the daemon"
    assert session.before(Question(frames.STATS)) != [marker]
    assert len(session.before(Question(frames.STATS))) == 1


@pytest.mark.parametrize(
    ("key", "refusal"),
    [
        (frames.STATS, ("unknown_listing", b"nosuch")),
        (frames.STATS, ("not_permitted", frames.STATS)),
        (frames.TAG, ("bad_tag", b"two words")),
        (frames.TAG, ("not_permitted", frames.TAG)),
        (b"x", ("unknown_control", b"x")),
    ],
)
def test_a_refusal_of_a_question_is_its_answer_and_no_event(key: bytes, refusal: tuple[str, bytes]) -> None:
    session = Session()
    question = ask(session, key, b"nosuch")
    reads(session, frames.error("bad_channel", b"two words"), frames.error(*refusal))
    assert list(session.events) == [Refusal("bad_channel", "two words")]
    with pytest.raises(BusError) as caught:
        question.result()
    assert caught.value.reason == refusal[0]


@pytest.mark.parametrize(
    ("begin", "frame"),
    [
        (lambda session: session.tagging(b"door"), b"CMSG !/bccn/tag\0door"),
        (lambda session: session.locally(True), b"CMSG !/bccn/local/on"),
        (lambda session: session.locally(False), b"CMSG !/bccn/local/off"),
    ],
)
def test_a_tag_or_mode_is_in_force_when_the_echo_behind_it_comes(
    begin: Callable[[Session], tuple[Question, Question]], frame: bytes
) -> None:
    session = Session()
    change, sync = begin(session)
    assert change.frame == frame
    session.asked(change)
    session.asked(sync)
    reads(session, sync.frame)
    assert (sync.done, change.done) == (True, False)
    assert len(session.before(Question(b"x"))) == 1  # no other answer to it is expected
    if b"local" in frame:
        session.spoken_locally(frame.endswith(b"on"))
        assert session.opening()[-1] == frame


def test_questions_end_with_the_connection_that_they_were_asked_on() -> None:
    session = Session()
    told: list[str] = []
    question = ask(session, b"x")
    question.on_done = lambda: told.append("done")
    session.lose(1.0)
    assert (question.done, question.lost, told) == (True, True, ["done"])
    reads(session, session.greeting()[-1])
    reads(session, frames.control(b"x", b"late"))
    assert question.answer is None


def test_a_sync_is_sure_of_what_was_published_unless_a_daemon_went_away_with_it() -> None:
    session = Session()
    session.published()
    reads(session, ask(session, frames.SYNC, b"1").frame)
    assert session.sure()
    session.lose(1.0)
    assert session.sure()  # all was confirmed
    session.published()
    session.lose(2.0)
    reads(session, session.greeting()[-1])
    session.published()
    reads(session, ask(session, frames.SYNC, b"2").frame)
    assert not session.sure()
    assert session.sure()  # said once
    early = ask(session, frames.SYNC, b"3")
    session.published()
    reads(session, early.frame)
    session.lose(3.0)
    assert not session.sure()  # what came after the question was not confirmed


# -- the session: losing the daemon


def test_a_client_that_calls_again_is_welcome_when_the_last_word_is_echoed() -> None:
    session = Session()
    welcome = [session.welcome]
    session.lose(1.0)
    last = session.greeting()[-1]
    for packet in (frame(b"a", b"1"), b"CMSG !/bccn/sync\0something else", last):
        welcome.append(session.welcome)
        reads(session, packet, now=3.0)
    welcome.append(session.welcome)
    assert welcome == [True, False, False, False, True]
    reads(session, frame(b"a", b"2"), now=5.0)
    told = [event.payload if isinstance(event, Message) else event for event in session.events]
    assert told == [Reconnected(2.0), b"1", b"2"]


def test_what_is_refused_at_the_welcome_comes_behind_it_and_failed_attempts_are_one_absence() -> None:
    session = Session()
    session.lose(1.0)
    session.greeting()
    session.lose(2.0)
    last = session.greeting()[-1]
    reads(session, frames.error("not_permitted", b"a"), now=2.0)
    assert not session.events
    reads(session, last, now=9.0)
    assert list(session.events) == [Reconnected(8.0), Refusal("not_permitted", "a")]


@pytest.mark.parametrize("reason", ["too_many_clients", "too_many_clients_of_user", "not_admitted"])
def test_to_be_turned_away_is_told_once_and_makes_patient(reason: str) -> None:
    session = Session()
    session.lose(1.0)
    for _ in range(3):
        session.greeting()
        reads(session, frames.error(reason, b""), now=2.0)
        session.lose(2.0)
        assert session.turned_away == reason
        assert session.pause(1.0) == LONGEST
    assert list(session.events) == [Refusal(reason, "")]
    reads(session, session.greeting()[-1], now=9.0)
    assert list(session.events) == [Refusal(reason, ""), Reconnected(8.0)]
    assert not session.turned_away


def test_attempts_come_ever_more_slowly_until_one_succeeds() -> None:
    session = Session()
    session.lose(1.0)
    pauses = [session.pause(1.0) for _ in range(8)]
    assert pauses == [SHORTEST * 2**n for n in range(6)] + [LONGEST, LONGEST]
    assert session.pause(0.0) == LONGEST / 2
    reads(session, session.greeting()[-1])
    session.lose(2.0)
    assert session.pause(1.0) == SHORTEST


# -- either client, and a daemon that comes and goes


@pytest.fixture(params=[connect, Driven], ids=["blocking", "asyncio"])
def bus(request: pytest.FixtureRequest, bare: Bare) -> Iterator[Connection]:
    """Either client, connected to the scripted daemon."""
    with request.param(bare.address) as connection:
        yield connection


def restarted(bare: Bare, bus: Connection) -> None:
    """Let another daemon come, and the client be told."""
    bare.restart()
    assert isinstance(bus.receive(PATIENCE), Reconnected)


def test_the_next_daemon_is_told_all_that_is_held_before_anything_else(bare: Bare, bus: Connection) -> None:
    bus.subscribe("a", "b/", "a")
    bus.tag("door")
    bus.echo(False)
    bus.blocking(soft="block", hard="error")
    bus.blocking(hard="discard")
    bus.order("stack")
    bus.local(True)
    bus.unsubscribe("b/")
    bus.sync()
    bare.restart()
    bus.publish("a", "after")
    bus.sync()
    held = [
        *(META, b"CMSG !/bccn/tag\0door", b"CMSG echo/off", b"CMSG blocking/soft/block"),
        *(b"CMSG blocking/hard/discard", b"CMSG order/stack", b"CMSG !/bccn/local/on", b"SUB a", b"SUB a"),
    ]
    assert without_syncs(bare.said[1]) == [*held, b"MSG a\0after"]
    assert bare.said[1].index(b"MSG a\0after") == len(held) + 1  # only when the daemon has said that it is there


def test_modes_are_said_as_they_are_set(bare: Bare, bus: Connection) -> None:
    bus.echo(True)
    bus.echo(False)
    bus.blocking()
    for mode in ("queue", "discard", "block", "error"):
        bus.blocking(soft=mode)
    for mode in ("discard", "block", "error"):
        bus.blocking(hard=mode)
    for order in ("queue", "stack", "random"):
        bus.order(order)
    for soft, hard in (("never", None), (None, "queue"), ("block", "never")):
        with pytest.raises(BusError, match="bad_mode"):
            bus.blocking(soft, hard)
    with pytest.raises(BusError, match="bad_mode"):
        bus.order("up")
    bus.sync()
    assert without_syncs(bare.said[0]) == [
        *(META, b"CMSG echo/on", b"CMSG echo/off"),
        *(b"CMSG blocking/soft/" + mode for mode in (b"queue", b"discard", b"block", b"error")),
        *(b"CMSG blocking/hard/" + mode for mode in (b"discard", b"block", b"error")),
        *(b"CMSG order/" + order for order in (b"queue", b"stack", b"random")),
    ]


@both
def test_batches_are_asked_for_first_and_again_of_the_next_daemon(bare: Bare, join: Join) -> None:
    with join(bare.address, batch=True) as bus:
        bus.subscribe("a")
        bus.sync()
        assert without_syncs(bare.said[0]) == [META, BATCH, b"SUB a"]
        restarted(bare, bus)
        assert without_syncs(bare.said[1]) == [META, BATCH, b"SUB a"]
        bus.batch(False)
        restarted(bare, bus)
        assert without_syncs(bare.said[2]) == [META, b"CMSG !/bccn/batch/off", b"SUB a"]
    with join(bare.address) as bus:
        bus.batch(True)
        bus.sync()
        assert without_syncs(bare.said[3]) == [META, BATCH]


@both
@pytest.mark.parametrize("asked", [False, True])
def test_what_comes_in_batches_comes_one_by_one_and_in_its_place(bare: Bare, join: Join, asked: bool) -> None:
    packets = [
        *(frame(b"a", b"1"), batch(b"2", b"3"), frames.gap(4), batch(b"5"), batch(b"6", b"7", b"8")),
        *(frames.error("bad_channel", b"two words"), batch(b"9", b"10"), frame(b"a", b"x" * 100_000), batch(b"11")),
    ]
    wanted = [b"1", b"2", b"3", Gap(4), b"5", b"6", b"7", b"8", Refusal("bad_channel", "two words"), b"9", b"10"]
    wanted += [b"x" * 100_000, b"11"]
    with join(bare.address, batch=asked) as bus:
        bus.sync()
        bare.send(*packets)
        events = [bus.receive(PATIENCE) for _ in wanted]
        assert [event.payload if isinstance(event, Message) else event for event in events] == wanted
        assert bus.receive(0) is None
        assert bus.lost == 4


@both
def test_asking_keeps_what_comes_before_the_answer(bare: Bare, join: Join) -> None:
    numbers = [b"%d" % number for number in range(103)]
    bare.answers[b"SUB a"] = [*(frame(b"a", number) for number in numbers[:50]), batch(*numbers[50:100])]
    whoami = frames.control(frames.WHOAMI, b"me")
    bare.answers[b"CMSG !/bccn/whoami"] = [batch(*numbers[100:102]), whoami, batch(numbers[102])]
    with join(bare.address, batch=True) as bus:
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
    bare._connections[-1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    bare.send(frames.batch(many), frames.batch(large), frame(b"end"))
    found = iter(bus)
    got = [next(found) for _ in range(7300)]
    assert {one.chan for one in got[:7000]} == {""}
    assert {one.payload for one in got[7000:]} == {b"x" * 1000}
    assert next(found).chan == "end"


@both
def test_a_daemon_that_knows_no_batches_says_so_and_goes_on_without(bare: Bare, join: Join) -> None:
    bare.answers[BATCH] = [frames.error("unknown_control", frames.BATCH_ON)]
    bare.answers[b"SUB a"] = [frame(b"a", b"1")]
    with join(bare.address, batch=True) as bus:
        bus.subscribe("a")
        assert bus.sync() == [Refusal("unknown_control", "!/bccn/batch/on")]
        assert next(iter(bus)).payload == b"1"


def test_a_tag_or_mode_that_is_refused_is_an_error_and_not_said_again(bare: Bare, bus: Connection) -> None:
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
    for held in ([META, b"CMSG !/bccn/tag\0fine"], [META]):
        restarted(bare, bus)
        assert without_syncs(bare.said[-1]) == held
        bus.tag("")


def test_an_absence_is_told_in_its_place(bare: Bare, bus: Connection) -> None:
    bus.subscribe("a")
    bare.heard(b"SUB a")
    bare.send(frame(b"a", b"1"), frames.gap(2), frame(b"a", b"2"))
    bare.answers[b"SUB a"] = [frame(b"a", b"3")]  # before all is said
    bare.restart()
    events = [bus.receive(PATIENCE) for _ in range(5)]
    bare.send(frame(b"a", b"4"))
    events.append(bus.receive(PATIENCE))
    (away,) = (event for event in events if isinstance(event, Reconnected))
    assert [event.payload if isinstance(event, Message) else event for event in events] == [
        *(b"1", Gap(2), b"2", away, b"3", b"4")
    ]
    assert 0 < away.seconds < PATIENCE
    assert (bus.lost, bus.reconnects) == (2, 1)


def test_iterating_leaves_out_gaps_and_absences_and_counts_them(bare: Bare, bus: Connection) -> None:
    bare.answers[b"SUB a"] = [frames.gap(3), frame(b"a", b"x")]
    bus.subscribe("a")
    found = iter(bus)
    for times in range(3):
        assert next(found).payload == b"x"
        assert (bus.lost, bus.reconnects) == (3 * (times + 1), times)
        bare.restart()


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


def test_what_one_daemon_has_taken_is_not_sent_to_the_next_and_what_none_has_is(bare: Bare, bus: Connection) -> None:
    bus.publish("a", "1")
    bare.heard(b"MSG a\x001")
    bare.restart()
    for number in range(2, 5):
        bus.publish("a", str(number))
    bare.heard(b"MSG a\x004")
    messages = [packet for packet in bare.said[1] if packet.startswith(b"MSG")]
    assert messages == [b"MSG a\x002", b"MSG a\x003", b"MSG a\x004"]


def test_a_sync_says_when_a_daemon_has_gone_that_had_not_confirmed_what_was_published(
    bare: Bare, bus: Connection
) -> None:
    bus.publish("a", "confirmed")
    bus.sync()
    bare.restart()
    assert bus.sync() == []
    bus.publish("a", "not confirmed")
    bare.heard(b"MSG a\0not confirmed")
    bare.restart()
    with refused("connection_lost"):
        bus.sync()
    assert bus.sync() == []


def test_sending_waits_for_the_daemon_but_not_for_ever(
    bare: Bare, bus: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    bus.subscribe("a")
    bus.sync()
    bare.stop()
    calls: list[Callable[[], object]] = [
        *(lambda: bus.publish("a"), lambda: bus.subscribe("b"), lambda: bus.unsubscribe("a")),
        *(lambda: bus.echo(True), lambda: bus.sync(0.1), lambda: bus.ask(frames.WHOAMI, timeout=0.1)),
    ]
    for call in calls:
        with refused("connection_lost", bare.address):
            call()
    bare.start()
    assert isinstance(bus.receive(PATIENCE), Reconnected)
    bus.sync()
    assert without_syncs(bare.said[1]) == [META, b"SUB a"]  # what has failed was not done


def test_a_question_is_asked_again_when_its_daemon_goes_away(bare: Bare, bus: Connection) -> None:
    bus.sync()

    def go_away() -> None:
        bare.heard(b"CMSG !/bccn/whoami")
        bare.answers[b"CMSG !/bccn/whoami"] = [frames.control(frames.WHOAMI, b"me")]
        bare.restart()

    thread = threading.Thread(target=go_away)
    thread.start()
    assert bus.identity() == "me"
    thread.join()


def test_much_can_be_restored_while_much_comes(bare: Bare, bus: Connection) -> None:
    patterns = [f"{number:04}/{'x' * 200}" for number in range(2000)]
    bus.subscribe(*patterns)
    bus.sync()
    bare.answers = {b"SUB " + pattern.encode(): [frame(b"a", b"y" * 1000)] for pattern in patterns}
    restarted(bare, bus)
    assert all(isinstance(bus.receive(PATIENCE), Message) for _ in patterns)
    assert without_syncs(bare.said[1])[1:] == [b"SUB " + pattern.encode() for pattern in patterns]


@both
@pytest.mark.parametrize("batched", [False, True])
def test_a_client_that_is_turned_away_is_told_once_and_tries_again(
    bare: Bare, join: Join, monkeypatch: pytest.MonkeyPatch, batched: bool
) -> None:
    impatient(monkeypatch)
    monkeypatch.setattr("bccnd.client.session.LONGEST", 0.02)
    bare.refuses = frames.error("too_many_clients", b"")
    with join(bare.address, batch=batched) as bus:
        assert bus.receive(PATIENCE) == Refusal("too_many_clients", "")
        assert bus.receive(0.1) is None
        with refused("connection_lost", "too_many_clients"):
            bus.publish("a")
        bare.refuses = None
        assert isinstance(bus.receive(PATIENCE), Reconnected)
        bus.publish("a")
        bare.heard(b"MSG a\0")


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
def test_without_reconnecting_the_first_loss_is_the_end_but_what_came_is_received(bare: Bare, join: Join) -> None:
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
        assert len(bare.said) == 1


def test_what_cannot_be_sent_is_refused_here_and_harms_nothing(bare: Bare, bus: Connection) -> None:
    with refused("too_long"):
        bus.publish("a", b"x" * (4 << 20))
    with refused("bad_channel"):
        bus.publish("a\0b")
    with refused("bad_target"):
        bus.send_to("")
    bus.publish("a", b"fine")
    bare.heard(b"MSG a\0fine")


@both
def test_an_abstract_address_can_be_named_and_written_out_to_the_last_byte(join: Join, tmp_path: Path) -> None:
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
    nowhere = tmp_path / "nowhere.sock"
    with refused("no_daemon", f"{nowhere}: No such file"):
        join(str(nowhere))


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
        later = threading.Timer(0.05, lambda: opened.enter_context(listener.accept()[0]))
        later.start()
        with join(path):
            later.join()


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


@both
def test_nothing_stays_open(join: Join, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with Bare(str(tmp_path / "bus.sock")) as bare:
        with join(bare.address) as bus:
            for _ in range(3):
                bus.publish("a")
                bus.fileno()
                restarted(bare, bus)
            bare.stop()
            assert bus.receive(0.1) is None
        assert bus.fileno() == -1
        with pytest.raises(BusError):
            join(bare.address)
    assert len(os.listdir("/proc/self/fd")) == before
