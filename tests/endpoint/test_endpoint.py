"""A program straight on the segment: what each call sends, hears, counts and refuses, over real sockets on loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import Any, Final

import pytest

from bccnd.client.message import Message
from bccnd.core.trust import signatures
from bccnd.endpoint.endpoint import Endpoint
from tests.e2e.harness import KEY, datagram
from tests.endpoint.segments import Segment, heard, in_threads, judged, payloads, refused, until_now, verdicts
from tests.limits import descriptors
from tests.net.sockets import broadcaster
from tests.support import BROADCAST

OTHER_KEY: Final = b"another key, as long as it has to be"
SIG: Final = signatures.generate()
PUBLIC: Final = signatures.public_of(SIG)
#: every byte that a payload can hold
BYTES: Final = bytes(range(256))


# -- opening and closing


def test_open_opens_one_socket_and_close_gives_it_back(segment: Segment) -> None:
    before = descriptors()
    endpoint = segment.closed("a/b/1")
    assert descriptors() == before
    assert endpoint.open() is True
    opened = descriptors()
    assert len(opened) == len(before) + 1
    assert str(endpoint.fileno()) in opened
    assert endpoint.open() is True  # to do so twice is no fault, and opens nothing
    assert descriptors() == opened
    endpoint.close()
    endpoint.close()
    assert descriptors() == before
    with suppress(ZeroDivisionError), endpoint as same:
        assert same is endpoint
        same.send("x", "again")
        assert heard(endpoint).payload == b"again"
        raise ZeroDivisionError
    assert descriptors() == before


USES: list[Callable[[Endpoint], object]] = [
    *(lambda one: one.fileno(), lambda one: one.send("x", "y"), lambda one: one.send_all("y")),
    *(lambda one: one.send_to("x", "y"), lambda one: one.send_topic("x", "y"), lambda one: one.recv()),
    *(lambda one: one.recv(0), lambda one: one.receive("x"), lambda one: one.dispatch()),
    *(lambda one: one.heartbeat_start(1), lambda one: next(iter(one))),
]


def test_what_needs_a_socket_says_that_there_is_none(segment: Segment) -> None:
    endpoint = segment.closed("a")
    for _ in ("before it was opened", "and after it was closed"):
        for use in USES:
            seq = endpoint.seq
            assert refused(use, endpoint).reason == "not_open"
            assert endpoint.seq == seq
        endpoint.open()
        endpoint.close()


@pytest.mark.parametrize(
    ("options", "reason", "output"),
    [
        ({"address": "localhost"}, "bad_address", "localhost"),
        ({"address": ""}, "bad_address", "''"),
        ({"address": "10.0.0.0/24"}, "bad_address", "10.0.0.0/24"),
        *(({"port": port}, "bad_port", str(port)) for port in (0, 65_536, -1)),
        *(({"hop_limit": limit}, "bad_hop_limit", str(limit)) for limit in (0, 256, -2)),
        ({"speed_window": -1}, "bad_speed_window", "-1"),
        *(({"largest": size}, "bad_largest", str(size)) for size in (-1, 0, 65_508)),
        ({"algorithm": "md5"}, "bad_key", ""),
        ({"algorithm": "sig", "signers": {"a": [KEY]}}, "bad_key", ""),
        # What would not protect: a key for each character or byte, an empty one, keys that are never used.
        *(({"keys": keys}, "bad_key", "") for keys in (KEY.decode(), KEY, [b""], [SIG])),
        *(({"keys": [KEY], "algorithm": algorithm}, "bad_key", "") for algorithm in ("none", "crc32")),
        ({"keys": [KEY], "signers": {"a": [PUBLIC]}}, "bad_key", ""),
        ({"address": "127.0.0.1"}, "no_broadcast_address", "127.0.0.1"),
        ({"address": "::1"}, "no_broadcast_address", "multicast"),
        ({"bind": "127.0.0.1"}, "bind_misses_broadcast", "broadcast"),
        ({"bind": "nonsense"}, "bind_misses_broadcast", "'bind'"),
        ({"interface": "nosuch0"}, "no_interface", "nosuch0"),
    ],
)
def test_options_are_refused_at_once_and_segments_by_open(
    segment: Segment, options: dict[str, Any], reason: str, output: str
) -> None:
    before = descriptors()
    if reason.startswith("bad_"):
        error = refused(Endpoint, "a", **options)
    else:
        endpoint = segment.closed("a", **options)
        error = refused(endpoint.open)
        assert "remedy: " in error.detail
        assert endpoint.error() == error.detail
        assert refused(endpoint.fileno).reason == "not_open"
    assert (error.reason, output in error.detail) == (reason, True)
    assert descriptors() == before


def test_a_multicast_group_works_like_broadcast(segment: Segment) -> None:
    options = {"address": "239.1.2.3", "bind": "239.1.2.3", "interface": "lo", "hop_limit": 7, "keys": [KEY]}
    one, two = (segment.endpoint(name, **options) for name in ("a/b/1", "a/b/2"))
    one.send("x/y", "to the group")
    for endpoint in (one, two):
        assert heard(endpoint)[:5] == ("a/b/1", one.seq - 1, "x/y", b"to the group", "plain")
    two.send_to("a/b/1", "and back")
    assert heard(one).payload == b"and back"


# -- name and seq


def test_the_name_is_what_was_set_and_nothing_is_a_question_mark(segment: Segment) -> None:
    endpoint = segment.endpoint("before")
    assert endpoint.name == "before"
    for set_to, name in ((None, "?"), ("", "?"), *((name, name) for name in ("?", "a", "a/b/1", "??", "n" * 128))):
        endpoint.name = set_to
        assert endpoint.name == name
        endpoint.send("x")
        assert heard(endpoint).src == name
        assert segment.closed(set_to).name == name  # type: ignore[arg-type]
    assert segment.closed().name == "?"


def test_a_bad_field_is_refused_and_changes_nothing(segment: Segment) -> None:
    """Which are bad is in the table of vectors; here are those that are no text of a datagram."""
    endpoint = segment.endpoint("before")
    seq = endpoint.seq
    for name in ("a b", "\xfc", "\ud800", "n" * 129):
        for call, *arguments in (segment.closed,), (setattr, endpoint, "name"):
            assert refused(call, *arguments, name).reason == "bad_src"
    for chan in ("", None, "\ud800"):
        error = refused(endpoint.send, chan, "x")
        assert (error.reason, endpoint.error(), bool(error.detail)) == ("bad_channel", error.detail, True)
    assert refused(endpoint.send_to, "", "x").reason == "bad_target"  # no name is not all of them
    assert (endpoint.name, endpoint.seq) == ("before", seq)
    assert until_now(endpoint) == []


def test_every_send_takes_the_next_seq_which_can_be_set(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    start = endpoint.seq
    assert [endpoint.send("x") for _ in range(3)] == [start, start + 1, start + 2]
    assert endpoint.seq == start + 3
    for number in (1, 0, 2**64 - 1):
        endpoint.seq = number
        assert endpoint.seq == number
        assert endpoint.send("x") == number
    assert endpoint.seq == 0  # behind the last number of 64 bits comes the first
    assert [message.seq for message in until_now(endpoint)] == [start, start + 1, start + 2, 1, 0, 2**64 - 1]
    before = endpoint.seq
    for number in (-1, 2**64):
        assert refused(setattr, endpoint, "seq", number).reason == "bad_seq"
        assert endpoint.seq == before


def test_a_datagram_is_what_was_sent_byte_for_byte(segment: Segment) -> None:
    """Arguments that may be left out, None, text and bytes; what each of them may hold is in the table of vectors."""
    endpoint, wire = segment.endpoint("me/1"), segment.wire
    send: Callable[..., int] = endpoint.send
    for parts, (src, chan, payload) in (
        (("x",), ("me/1", "x", b"")),
        (("x", "\xfc \u20ac"), ("me/1", "x", "\xfc \u20ac".encode())),
        (("x", BYTES), ("me/1", "x", BYTES)),
        (("x", None), ("me/1", "x", b"")),
        ((None, "x", "p"), ("me/1", "x", b"p")),
        (("", "x", "p"), ("?", "x", b"p")),
        (("you/2", "x", "p"), ("you/2", "x", b"p")),
        (("you/2", "x", None), ("you/2", "x", b"")),
    ):
        seq = send(*parts)
        assert wire.receive(b":%d:" % seq) == datagram(src, seq, chan, payload)
        assert heard(endpoint)[:4] == (src, seq, chan, payload)
        assert endpoint.name == "me/1"


# -- as the Perl module has it


def test_notify_is_true_or_false_and_then_error_says_why(segment: Segment) -> None:
    endpoint = segment.endpoint("a/b/1")
    assert endpoint.error() is None
    assert endpoint.notify("supply", "txnid=12345:avail=1234:rc=00") is True
    assert endpoint.notify("supply") is True
    assert endpoint.error() is None
    assert heard(endpoint)[:4] == ("a/b/1", endpoint.seq - 2, "supply", b"txnid=12345:avail=1234:rc=00")
    for clears in (endpoint.notify, endpoint.send, endpoint.send_all, endpoint.send_to, endpoint.send_topic):
        assert endpoint.notify("two words", "x") is False
        endpoint.stats()
        endpoint.beat("x" * 2000)  # fails, too, but not for this program
        assert "'two words'" in (endpoint.error() or "")
        clears("x")
        assert endpoint.error() is None
    endpoint.close()
    assert endpoint.notify("x") is False
    assert "open()" in (endpoint.error() or "")
    endpoint.open()
    assert endpoint.error() is None


# -- copies


def test_with_dedup_a_message_comes_once(segment: Segment) -> None:
    endpoint, without = segment.endpoint("a", dedup=True), segment.endpoint("a")
    before = time.time()
    one = datagram("b", 1, "x", "p")
    different = [datagram("c", 1, "x", "p"), datagram("b", 2, "x", "p"), datagram("b", 1, "y", "p")]
    # The payload does not tell messages apart, where there is a sender.
    segment.wire.send(one, one, *different, *different, datagram("b", 1, "x", "q"), one)
    messages = judged(endpoint, 10)
    assert [message[:3] for message in messages] == [("b", 1, "x"), ("c", 1, "x"), ("b", 2, "x"), ("b", 1, "y")]
    assert verdicts(endpoint) == {"accepted": 4, "duplicate": 6}
    stats = endpoint.stats()
    assert (stats["DDC"], stats["TQMC"]["*"]) == (4, 4)
    assert before - 0.001 <= stats["DDO"] <= time.time() + 0.001  # as exact as a float is
    assert len(judged(without, 10)) == 10
    without.clear_dedup()
    without.clear_dedup(5)
    assert not {"DDC", "DDO"} & set(without.stats())
    endpoint.clear_dedup(3600)
    assert endpoint.stats()["DDC"] == 4
    endpoint.clear_dedup()
    assert (endpoint.stats()["DDC"], endpoint.stats()["DDO"]) == (0, None)
    segment.wire.send(one)
    assert [message.seq for message in judged(endpoint, 11)] == [1]


def test_senders_differ_by_name_and_address_or_by_port(segment: Segment) -> None:
    elsewhere, endpoint = segment.endpoint("a", dedup=True), segment.endpoint("a", dedup=True)
    with ExitStack() as ends:
        for host in ("127.0.0.1", "127.0.0.2"):
            ends.enter_context(broadcaster(host)).sendto(datagram("c", 1, "x"), (BROADCAST, segment.port))
        assert [message.peer.partition(":")[0] for message in judged(elsewhere, 2)] == ["127.0.0.1", "127.0.0.2"]
        assert len(judged(endpoint, 2)) == 2
        for _ in range(2):
            other = ends.enter_context(broadcaster())
            for src, payload in (("b", "1"), ("b", "2"), ("?", "1"), ("?", "2"), ("?", "1")):
                other.sendto(datagram(src, 1, "x", payload), (BROADCAST, segment.port))
        messages = judged(endpoint, 12)
    assert [(message.src, message.payload) for message in messages] == [
        *[("b", b"1"), ("?", b"1"), ("?", b"2")],
        *[("?", b"1"), ("?", b"2")],
    ]
    assert len({message.peer for message in messages if message.src == "?"}) == 2
    assert verdicts(endpoint) == {"accepted": 7, "duplicate": 5}


def test_what_is_dropped_for_another_reason_is_not_remembered(segment: Segment) -> None:
    endpoint = segment.endpoint("a", dedup=True, keys=[KEY])
    segment.wire.send(datagram("b", 1, "!c", "", KEY), datagram("b", 2, "x"), datagram("b", 3, "x", "", OTHER_KEY))
    assert judged(endpoint, 3) == []
    assert endpoint.stats()["DDC"] == 0
    segment.wire.send(datagram("b", 2, "x", "", KEY), datagram("b", 3, "x", "", KEY))
    assert len(judged(endpoint, 5)) == 2


@pytest.mark.parametrize(
    ("options", "unsigned", "signed"),
    [
        ({}, "accepted", "integrity_unknown"),
        ({"algorithm": "crc32"}, "integrity_missing", "integrity_unknown"),
        ({"keys": [KEY]}, "integrity_missing", "accepted"),
        ({"keys": [KEY.decode()]}, "integrity_missing", "accepted"),
    ],
    ids=str,
)
def test_what_options_make_of_a_check(segment: Segment, options: dict[str, Any], unsigned: str, signed: str) -> None:
    """Every kind of check and fault is in the table of vectors; here are the options that have a default."""
    endpoint = segment.endpoint("a", **options)
    segment.wire.send(datagram("b", 1, "x"), datagram("b", 2, "x", "p", KEY))
    assert len(judged(endpoint, 2)) == (unsigned, signed).count("accepted")
    assert verdicts(endpoint) == {unsigned: 1, signed: 1}


def test_one_message_may_be_signed_with_another_key(segment: Segment) -> None:
    wire = segment.wire
    plain, usual = segment.endpoint("a"), segment.endpoint("b", keys=[KEY])
    for one in (plain, usual):
        for seq, chan in (
            (one.send("x", "p", key=OTHER_KEY), "x"),
            (one.send(None, "x", "p", key=OTHER_KEY.decode()), "x"),
            (one.send_topic("x", "p", key=OTHER_KEY), "x"),
            (one.send_all("p", key=OTHER_KEY), "!"),
            (one.send_to("c", "p", key=OTHER_KEY), "!c"),
        ):
            assert wire.receive(b":%d:" % seq) == datagram(one.name, seq, chan, "p", OTHER_KEY)
    seq = usual.send("x", "p")  # the next one is as usual
    assert wire.receive(b":%d:" % seq) == datagram("b", seq, "x", "p", KEY)
    assert payloads(judged(usual, 11)) == [b"p"]
    assert verdicts(usual) == {"accepted": 1, "integrity_failed": 10}
    assert refused(plain.send, "x", key="").reason == "bad_key"


# -- hostile input


@pytest.mark.parametrize("largest", [120, 1500, 65_507])
def test_a_datagram_is_accepted_up_to_the_set_length(segment: Segment, largest: int) -> None:
    endpoint = segment.endpoint("a", **({} if largest == 1500 else {"largest": largest}))
    head = len(datagram("b", 1, "x", b"." * (largest - 20))) - (largest - 20)
    fits = datagram("b", 1, "x", b"." * (largest - head))
    assert len(fits) == largest
    segment.wire.send(fits)
    assert len(heard(endpoint).payload) > largest - 30
    if largest < 65_507:
        segment.wire.send(fits + b".", b"")
        judged(endpoint, 3)
        assert verdicts(endpoint) == {"accepted": 1, "oversize": 1, "bad_envelope": 1}


# -- heartbeats


def beats(endpoint: Endpoint, count: int) -> list[Message]:
    """The next heartbeats that an endpoint hears."""
    found: list[Message] = []
    while len(found) < count:
        message = heard(endpoint)
        if message.chan.startswith("heartbeat/"):
            found.append(message)
    return found


def test_heartbeats_come_at_once_and_again(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a/b/1", keys=[KEY]), segment.endpoint("c", keys=[KEY])
    first = endpoint.seq
    endpoint.heartbeat_start(0.02, "all is well")
    found = beats(other, 4)
    assert {message[:5] for message in found} == {
        ("a/b/1", seq, "heartbeat/a/b/1", b"all is well", "plain") for seq in range(first, first + 4)
    }
    gaps = [later.received_ns - earlier.received_ns for earlier, later in pairwise(found)]
    assert sum(gaps) >= 0.02e9 * 2  # the last of three gaps may follow a late one
    endpoint.name = "a/2"
    until_now(other)
    assert {(message.src, message.chan) for message in beats(other, 2)} == {("a/2", "heartbeat/a/2")}
    endpoint.heartbeat_stop()


def threads_of_heartbeats() -> int:
    return sum(thread.name == "bccn-heartbeat" for thread in threading.enumerate())


@pytest.mark.parametrize("end", [Endpoint.heartbeat_stop, Endpoint.close, lambda one: one.heartbeat_start(3600)])
def test_heartbeats_end_with_stop_close_and_another_start(segment: Segment, end: Callable[[Endpoint], object]) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    before = threads_of_heartbeats()
    endpoint.heartbeat_start(0.001)
    assert threads_of_heartbeats() == before + 1
    beats(other, 3)
    end(endpoint)
    until_now(other)
    assert len(until_now(other)) <= threads_of_heartbeats() - before  # the first one of another start
    endpoint.heartbeat_stop()
    endpoint.heartbeat_stop()
    endpoint.open()
    assert threads_of_heartbeats() == before  # opening it again starts nothing by itself


@pytest.mark.parametrize(
    ("options", "arguments", "reason"),
    [
        *(({}, (interval,), "bad_interval") for interval in (0, -1, 0.0, float("nan"), float("inf"), 1e12)),
        ({}, (1, "x" * 2000), "too_long"),
        ({"algorithm": "sig", "signers": {"": [PUBLIC]}}, (1, ""), "no_signing_key"),
        ({"name": "?"}, (), "no_name"),
    ],
)
def test_heartbeats_that_can_never_be_sent_are_refused(
    segment: Segment, options: dict[str, Any], arguments: tuple[Any, ...], reason: str
) -> None:
    endpoint = segment.endpoint(**{"name": "a", **options})
    assert refused(endpoint.heartbeat_start, *arguments).reason == reason


def test_many_threads_send_each_seq_once_and_in_order(segment: Segment, hasty: None) -> None:
    endpoint, wire = segment.endpoint("a", keys=[KEY]), segment.wire
    first, taken = endpoint.seq, list[int]()

    def run() -> None:
        for _ in range(25):
            taken.append(endpoint.send("x"))
            endpoint.notify("x", "." * 2000)  # which fails, and leaves no gap

    endpoint.heartbeat_start(0.0005)
    with in_threads(*[run] * 8):
        pass
    endpoint.heartbeat_stop()
    found = [wire.receive(b"BCCN1").split(b":")[-2:] for _ in range(endpoint.seq - first)]
    assert [int(seq) for seq, _ in found] == list(range(first, endpoint.seq))  # a number is given and used in one step
    assert [int(seq) for seq, rest in found if rest.startswith(b"x|")] == sorted(taken)
    assert 200 == len(taken) < len(found)
