"""A program straight on the segment: what each call sends, hears, counts and refuses, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import select
import socket
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

import bccnd
from bccnd.client.endpoint import Endpoint
from bccnd.client.message import Message
from bccnd.core import signatures
from bccnd.core.verdicts import NAMES
from tests.client.segments import (
    Segment,
    descriptors,
    hasty,
    heard,
    judged,
    payloads,
    refused,
    segment,
    soon,
    until_now,
    verdicts,
)
from tests.e2e.harness import KEY, datagram
from tests.support import BROADCAST, PATIENCE, wait

__all__ = ["hasty", "segment"]  # fixtures

OTHER_KEY: Final = b"another key, as long as it has to be"
#: every byte that a payload can hold
BYTES: Final = bytes(range(256))


# -- opening and closing


def test_the_package_offers_it() -> None:
    assert bccnd.Endpoint is Endpoint


def test_nothing_is_opened_before_open_and_closing_gives_all_back(segment: Segment) -> None:
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
    endpoint.open()
    endpoint.send("x", "again")
    assert heard(endpoint).payload == b"again"


def test_with_opens_and_closes_whatever_happens(segment: Segment) -> None:
    before = descriptors()
    endpoint = segment.closed("a")

    def program() -> None:
        with endpoint as same:
            assert same is endpoint
            same.send("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    assert descriptors() == before
    assert refused(endpoint.fileno).reason == "not_open"


USES: dict[str, Callable[[Endpoint], object]] = {
    "fileno": lambda one: one.fileno(),
    "send": lambda one: one.send("x", "y"),
    "send_all": lambda one: one.send_all("y"),
    "send_to": lambda one: one.send_to("x", "y"),
    "send_topic": lambda one: one.send_topic("x", "y"),
    "recv": lambda one: one.recv(),
    "recv(0)": lambda one: one.recv(0),
    "receive": lambda one: one.receive("x"),
    "dispatch": lambda one: one.dispatch(),
    "heartbeat_start": lambda one: one.heartbeat_start(1),
    "iteration": lambda one: next(iter(one)),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_needs_a_socket_says_that_there_is_none(segment: Segment, use: Callable[[Endpoint], object]) -> None:
    endpoint = segment.closed("a")
    for _ in ("before it was opened", "and after it was closed"):
        seq = endpoint.seq
        error = refused(lambda: use(endpoint))
        assert (error.reason, error.detail) == ("not_open", "call open() first")
        assert endpoint.seq == seq
        endpoint.open()
        endpoint.close()


def test_what_needs_no_socket_works_without_one(segment: Segment) -> None:
    endpoint = segment.closed("a", dedup=True, speed_window=2)
    endpoint.listen("x", print)
    assert endpoint.unlisten("x", print)
    endpoint.beat()
    endpoint.heartbeat_stop()
    endpoint.clear_dedup()
    assert endpoint.notify("x") is False
    assert endpoint.error() == "call open() first"
    assert endpoint.stats()["QSC"] == 0


@pytest.mark.parametrize(
    ("options", "reason", "said"),
    [
        ({"address": "localhost"}, "bad_address", "write it in numbers"),
        ({"address": ""}, "bad_address", "'' is no address"),
        ({"address": "10.0.0.0/24"}, "bad_address", "10.0.0.0/24"),
        ({"port": 0}, "bad_port", "write 1 to 65535"),
        ({"port": 65_536}, "bad_port", "port is 65536; write 1 to 65535"),
        ({"port": -1}, "bad_port", "-1"),
    ],
    ids=str,
)
def test_an_address_or_a_port_that_is_none_is_refused_at_once(options: dict[str, Any], reason: str, said: str) -> None:
    error = refused(lambda: Endpoint("a", **options))
    assert error.reason == reason
    assert said in error.detail


@pytest.mark.parametrize(
    ("options", "reason", "said"),
    [
        ({"address": "127.0.0.1"}, "no_broadcast_address", "127.0.0.1 is not a broadcast address of this host"),
        ({"address": "::1"}, "no_broadcast_address", "multicast group"),
        ({"bind": "127.0.0.1"}, "bind_misses_broadcast", "receives no broadcast"),
        ({"bind": "nonsense"}, "bind_misses_broadcast", "leave out 'bind'"),
        ({"interface": "nosuch0"}, "no_interface", "there is no interface nosuch0"),
        ({"interface": "x" * 40}, "no_interface", "name one of: "),
        ({"address": "239.1.2.3", "interface": "nosuch0"}, "no_interface", "nosuch0"),
        ({"address": "239.1.2.3", "interface": "lo", "bind": "127.0.0.1"}, "bind_misses_broadcast", "no multicast"),
    ],
    ids=str,
)
def test_a_segment_that_cannot_be_reached_is_refused_with_a_remedy(
    segment: Segment, options: dict[str, Any], reason: str, said: str
) -> None:
    before = descriptors()
    endpoint = segment.closed("a", **options)
    error = refused(endpoint.open)
    assert error.reason == reason
    assert said in error.detail
    assert "remedy: " in error.detail
    assert endpoint.error() == error.detail
    assert descriptors() == before
    assert refused(endpoint.fileno).reason == "not_open"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"address": "239.1.2.3", "interface": "lo", "hop_limit": 256}, id="hop_limit above 255"),
        pytest.param({"address": "239.1.2.3", "interface": "lo", "hop_limit": -2}, id="hop_limit below 0"),
        pytest.param({"speed_window": -1}, id="speed_window below 0"),
        pytest.param({"largest": -1}, id="largest below 0"),
    ],
)
def test_options_that_mean_nothing_are_refused_at_once(segment: Segment, options: dict[str, Any]) -> None:
    before = descriptors()
    assert refused(lambda: segment.closed("a", **options)).detail
    assert descriptors() == before


def test_a_port_of_a_program_that_does_not_share_it_is_told_and_opens_when_it_is_gone(segment: Segment) -> None:
    endpoint = segment.closed("a")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as selfish:
        selfish.bind(("", segment.port))
        error = refused(endpoint.open)
        assert error.reason == "port_in_use"
        assert "every BCCN program must set SO_REUSEADDR" in error.detail
        assert endpoint.error() == error.detail
    assert endpoint.open() is True
    assert endpoint.error() is None


def test_programs_that_share_the_port_all_hear_everything_also_the_sender(segment: Segment) -> None:
    one, two, three = (segment.endpoint(name) for name in ("a/1", "b/2", "?"))
    bound = segment.endpoint("c/3", bind=BROADCAST, interface="lo")
    two.send("x", "to all of us")
    for endpoint in (one, two, three, bound):
        assert heard(endpoint)[:4] == ("b/2", two.seq - 1, "x", b"to all of us")
    segment.wire.send(datagram("d/4", 1, "x", "from elsewhere"))
    for endpoint in (one, two, three, bound):
        assert heard(endpoint)[:4] == ("d/4", 1, "x", b"from elsewhere")


GROUPS = [
    pytest.param({"address": "239.1.2.3", "interface": "lo"}, id="IPv4"),
    pytest.param({"address": "239.1.2.3", "interface": "lo", "bind": "239.1.2.3"}, id="IPv4, bound to the group"),
    pytest.param({"address": "239.1.2.3", "interface": "lo", "hop_limit": 7}, id="IPv4, over routers"),
]


@pytest.mark.parametrize("options", GROUPS)
def test_a_multicast_group_works_like_broadcast(segment: Segment, options: dict[str, Any]) -> None:
    one, two = (segment.endpoint(name, keys=[KEY], **options) for name in ("a/b/1", "a/b/2"))
    one.send("x/y", "to the group")
    for endpoint in (one, two):
        message = heard(endpoint)
        assert message[:5] == ("a/b/1", one.seq - 1, "x/y", b"to the group", "plain")
        assert message.peer.endswith(f":{segment.port}")
    two.send_to("a/b/1", "and back")
    assert heard(one).payload == b"and back"


def test_groups_and_broadcast_on_one_port_stay_apart(segment: Segment) -> None:
    one = segment.endpoint("a", address="239.1.2.3", interface="lo")
    two = segment.endpoint("b", address="239.1.2.4", interface="lo")
    three = segment.endpoint("c")
    for endpoint in (one, two, three):
        endpoint.send("x", f"from {endpoint.name}")
    for endpoint in (one, two, three):
        assert payloads(until_now(endpoint)) == [f"from {endpoint.name}".encode()]


# -- name and seq


@pytest.mark.parametrize(
    ("given", "name"),
    [(None, "?"), ("", "?"), ("?", "?"), ("a", "a"), ("a/b/1", "a/b/1"), ("??", "??"), ("n" * 128, "n" * 128)],
    ids=str,
)
def test_the_name_is_what_was_set_and_nothing_is_a_question_mark(
    segment: Segment, given: str | None, name: str
) -> None:
    endpoint = segment.endpoint("before")
    assert endpoint.name == "before"
    endpoint.name = given
    assert endpoint.name == name
    endpoint.send("x")
    assert heard(endpoint).src == name
    assert segment.closed(given).name == name  # type: ignore[arg-type]
    assert segment.closed().name == "?"


BAD_NAMES = ["a b", "a:b", "a|b", "a\n", "a\0", "a/", "a*", "*", "\xfc", "\udcff", "n" * 129]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_name_that_no_src_can_be_is_refused_and_the_old_one_stays(segment: Segment, name: str) -> None:
    assert refused(lambda: segment.closed(name)).reason == "bad_src"
    endpoint = segment.endpoint("before")
    error = refused(lambda: setattr(endpoint, "name", name))
    assert error.reason == "bad_src"
    assert repr(name) in error.detail
    assert endpoint.name == "before"
    seq = endpoint.seq
    assert refused(lambda: endpoint.send(name, "x", "")).reason == "bad_src"
    assert endpoint.seq == seq


def test_half_a_character_is_refused_like_any_other_bad_name(segment: Segment) -> None:
    assert refused(lambda: segment.closed("\ud800")).reason == "bad_src"
    assert refused(lambda: segment.endpoint("a").send("\ud800")).reason == "bad_channel"


def test_the_seq_begins_at_the_clock_so_that_a_restart_is_never_old(segment: Segment) -> None:
    before = time.time_ns() // 1000
    first = segment.closed("a").seq
    second = segment.closed("a").seq
    assert before <= first <= second <= time.time_ns() // 1000


def test_every_send_takes_the_next_seq_and_it_can_be_read_and_set(segment: Segment) -> None:
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


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_seq_beyond_64_bits_is_refused(segment: Segment, number: int) -> None:
    endpoint = segment.closed("a")
    before = endpoint.seq
    assert refused(lambda: setattr(endpoint, "seq", number)).reason == "bad_seq"
    assert endpoint.seq == before


# -- sending


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        (("x",), ("me/1", "x", b"")),
        (("x", "text"), ("me/1", "x", b"text")),
        (("x", b"bytes"), ("me/1", "x", b"bytes")),
        (("x", "\xfc \u20ac"), ("me/1", "x", "\xfc \u20ac".encode())),
        (("x", None), ("me/1", "x", b"")),
        ((None, "x", "p"), ("me/1", "x", b"p")),
        (("", "x", "p"), ("?", "x", b"p")),
        (("?", "x", "p"), ("?", "x", b"p")),
        (("you/2", "x", "p"), ("you/2", "x", b"p")),
        (("you/2", "x", None), ("you/2", "x", b"")),
        (("you/2", "!", b""), ("you/2", "!", b"")),
        (("x", BYTES), ("me/1", "x", BYTES)),
        (("c" * 1024, "p"), ("me/1", "c" * 1024, b"p")),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_datagram_is_what_was_said_byte_for_byte(
    segment: Segment, parts: tuple[Any, ...], found: tuple[str, str, bytes]
) -> None:
    endpoint = segment.endpoint("me/1")
    src, chan, payload = found
    wire = segment.wire
    send: Callable[..., int] = endpoint.send
    seq = send(*parts)
    assert wire.hear(b"BCCN1") == datagram(src, seq, chan, payload)
    assert heard(endpoint)[:4] == (src, seq, chan, payload)
    assert endpoint.name == "me/1"


def test_the_short_forms_send_what_they_stand_for(segment: Segment) -> None:
    endpoint = segment.endpoint("me/1")
    wire = segment.wire
    calls: list[tuple[Callable[[], int], str, bytes]] = [
        (lambda: endpoint.send_all("p"), "!", b"p"),
        (lambda: endpoint.send_all(), "!", b""),
        (lambda: endpoint.send_to("you/2", "p"), "!you/2", b"p"),
        (lambda: endpoint.send_to("you/*", b"p"), "!you/*", b"p"),
        (lambda: endpoint.send_to("you"), "!you", b""),
        (lambda: endpoint.send_topic("x/y", "p"), "x/y", b"p"),
        (lambda: endpoint.send_topic("x/y"), "x/y", b""),
    ]
    for call, chan, payload in calls:
        seq = call()
        assert wire.hear(b":%d:" % seq) == datagram("me/1", seq, chan, payload)


BAD_CHANNELS: list[tuple[Any, str]] = [
    ("", "bad_channel"),
    (None, "bad_channel"),
    ("a b", "bad_channel"),
    ("a:b", "bad_channel"),
    ("a|b", "bad_channel"),
    ("a\n", "bad_channel"),
    ("\0", "bad_channel"),
    ("\xfc", "bad_channel"),
    ("! ", "bad_channel"),
    ("c" * 1025, "bad_channel"),
    ("!?", "bad_target"),
    ("!?x", "bad_target"),
    ("!/bccn/stats", "bad_target"),
]


@pytest.mark.parametrize(("chan", "reason"), BAD_CHANNELS, ids=lambda value: ascii(value)[:20])
def test_a_channel_that_is_none_is_refused_and_takes_no_number(segment: Segment, chan: Any, reason: str) -> None:
    endpoint = segment.endpoint("a")
    seq = endpoint.seq
    error = refused(lambda: endpoint.send(chan, "x"))
    assert error.reason == reason
    assert endpoint.error() == error.detail
    assert error.detail
    assert endpoint.notify(chan) is False
    assert endpoint.error() == error.detail
    assert endpoint.seq == seq
    assert until_now(endpoint) == []


@pytest.mark.parametrize("target", ["?", "?/b", "/x"])
def test_a_target_that_can_be_nobody_is_refused(segment: Segment, target: str) -> None:
    assert refused(lambda: segment.endpoint("a").send_to(target)).reason == "bad_target"


def test_a_message_to_no_name_does_not_go_to_everyone(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    assert refused(lambda: endpoint.send_to("", "for one only")).reason == "bad_target"
    assert until_now(endpoint) == []


SIG: Final = signatures.generate()


@pytest.mark.parametrize(
    "options",
    [{}, {"algorithm": "crc32"}, {"keys": [KEY]}, {"keys": [SIG], "algorithm": "sig"}],
    ids=["none", "crc32", "hmac", "sig"],
)
def test_a_datagram_of_1400_bytes_goes_out_and_one_more_byte_does_not(
    segment: Segment, options: dict[str, Any]
) -> None:
    endpoint = segment.endpoint("a/b/1", **options)
    wire = segment.wire
    endpoint.send("x/y", b"." * 1200)
    payload = b"." * (1200 + 1400 - len(wire.hear(b"BCCN1")))
    endpoint.send("x/y", payload)
    assert len(wire.hear(b"BCCN1")) == 1400
    seq = endpoint.seq
    error = refused(lambda: endpoint.send("x/y", payload + b"."))
    assert error.reason == "too_long"
    assert error.detail == "1401 bytes, and a datagram has at most 1400"
    assert endpoint.notify("x/y", payload + b".") is False
    assert endpoint.error() == error.detail
    assert endpoint.seq == seq


# -- receiving


def test_a_message_tells_all_that_is_known_of_it(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    before = time.time_ns()
    segment.wire.send(datagram("relay02/sensor/77", 2**64 - 1, "demo/t1", "21|5"))
    message = heard(endpoint)
    assert before <= message.received_ns <= time.time_ns()
    assert message == Message(
        "relay02/sensor/77", 2**64 - 1, "demo/t1", b"21|5", "plain", f"127.0.0.1:{segment.port}", message.received_ns
    )


def test_senders_on_any_port_are_heard_and_told_apart(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        other.sendto(datagram("?", 1, "x"), (BROADCAST, segment.port))
        assert heard(endpoint).peer == f"127.0.0.1:{other.getsockname()[1]}"


def test_nothing_to_receive_is_none_when_the_time_is_over(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    assert endpoint.recv(0) is None
    assert endpoint.recv(-1) is None
    before = time.monotonic()
    assert endpoint.recv(0.03) is None
    assert time.monotonic() >= before + 0.03
    # What is not for us does not end the wait.
    before = time.monotonic()
    with soon(lambda: segment.wire.send(b"garbage", datagram("b", 1, "!b")), 0.01):
        assert endpoint.recv(0.05) is None
    assert time.monotonic() >= before + 0.05


@pytest.mark.parametrize("timeout", [None, PATIENCE])
def test_receiving_waits_for_a_message_to_come(segment: Segment, timeout: float | None) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    with soon(lambda: other.send("x", "at last")):
        message = endpoint.recv(timeout)
    assert message is not None
    assert message.payload == b"at last"


@pytest.mark.parametrize("timeout", [1e9, float("inf")])
def test_a_very_long_time_to_wait_is_one_too(segment: Segment, timeout: float) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    with soon(lambda: other.send("x")):
        assert endpoint.recv(timeout) is not None
    with soon(lambda: other.send("x")):
        assert endpoint.receive("x", timeout) is not None


def test_iterating_gives_messages_as_they_come_and_ends_with_the_socket(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    other.send("x", "1")
    other.send("!c", "not for us")
    with soon(lambda: other.send("y", "2")):
        found = iter(endpoint)
        assert [next(found).payload, next(found).payload] == [b"1", b"2"]
    endpoint.close()
    assert refused(lambda: next(found)).reason == "not_open"


def test_a_flood_of_what_is_dropped_lets_the_caller_go_on(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.client.endpoint.MAX_TAKEN", 10)
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    segment.wire.send(*[b"garbage"] * 50)
    other.send("x", "behind the flood")
    wait(lambda: segment.wire.hear(b"behind"))
    # Somebody can send faster than we read, and then there is no end to what can be read.
    assert endpoint.recv(0) is None
    assert verdicts(endpoint) == {"bad_envelope": 10}
    wait(lambda: endpoint.recv(0), "what came behind the flood")


# -- for whom


def test_directed_messages_reach_whom_they_name_and_nobody_else(segment: Segment) -> None:
    names = ["h/p/1", "h/p/1/7", "h/p/1/7/9", "h/p/12", "h/p", "h/q/1", "h2/p/1", "h", "h/p/1/w-3", "h/p/1/w-3/0", "?"]
    targets = {
        "h/p/1": {"h/p/1"},
        "h/p/1/*": {"h/p/1", "h/p/1/7", "h/p/1/7/9", "h/p/1/w-3", "h/p/1/w-3/0"},
        "h/p/1/7": {"h/p/1/7"},
        "h/p/1/7/*": {"h/p/1/7", "h/p/1/7/9"},
        "h/p": {"h/p/1", "h/p/1/7", "h/p/1/7/9", "h/p/12", "h/p", "h/p/1/w-3", "h/p/1/w-3/0"},
        "h/p/*": {"h/p/1", "h/p/1/7", "h/p/1/7/9", "h/p/12", "h/p", "h/p/1/w-3", "h/p/1/w-3/0"},
        "h": set(names) - {"h2/p/1", "?"},
        "h/*": set(names) - {"h2/p/1", "?"},
        "h/p/1/w-3": {"h/p/1/w-3", "h/p/1/w-3/0"},
        "h/p/1/w-3/0": {"h/p/1/w-3/0"},
        "h/": set(),
        "*": set(),
        "h/p/2": set(),
        "H": set(),
    }
    everyone = [segment.endpoint(name) for name in names]
    sender = segment.endpoint("sender")
    for target in targets:
        sender.send_to(target, target)
    sender.send_all("the end")
    for endpoint in everyone:
        messages = judged(endpoint, len(targets) + 1)
        mine = [target.encode() for target, reached in targets.items() if endpoint.name in reached]
        assert payloads(messages) == [*mine, b"the end"], endpoint.name
        assert {message.form for message in messages[:-1]} <= {"directed"}
        assert messages[-1].form == "all"
        assert verdicts(endpoint).get("not_addressed", 0) == len(targets) - len(mine)
        assert endpoint.stats()["TQMC"]["*"] == len(mine) + 1


def test_who_is_addressed_follows_the_name(segment: Segment) -> None:
    endpoint, sender = segment.endpoint(), segment.endpoint("sender")
    for name in ("a/1", "b/1", ""):
        endpoint.name = name
        for target in ("a/1", "b/1", "a", "b"):
            sender.send_to(target, target)
        wanted = [b"a/1", b"a"] if name == "a/1" else [b"b/1", b"b"] if name == "b/1" else []
        assert payloads(until_now(endpoint, sender)) == wanted


# -- listeners


PATTERNS = ["", "a/", "a/b", "a/*", "a/*/c", "a/>", ">", "*", "a", "a/b*", "*b", "!", "a/*b"]


@pytest.mark.parametrize(
    ("chan", "wanted"),
    [
        ("a", {"", ">", "*", "a"}),
        ("a/b", {"", "a/", "a/b", "a/*", "a/>", ">", "a/b*"}),
        ("a/bc", {"", "a/", "a/*", "a/>", ">", "a/b*"}),
        ("a/b/c", {"", "a/", "a/*/c", "a/>", ">"}),
        ("a/", {"", "a/", "a/*", "a/>", ">"}),
        ("b", {"", ">", "*"}),
        ("b/a", {"", ">"}),
        ("!", set(PATTERNS)),
        ("!me/1", set(PATTERNS)),
        ("!me", set(PATTERNS)),
        ("!you", None),
    ],
)
def test_a_message_calls_the_callbacks_whose_pattern_matches(
    segment: Segment, chan: str, wanted: set[str] | None
) -> None:
    endpoint = segment.endpoint("me/1")
    called: list[str] = []
    for pattern in PATTERNS:
        endpoint.listen(pattern, lambda message, pattern=pattern: called.append(pattern))  # type: ignore[misc]
    endpoint.send(chan, "x")
    wait(lambda: endpoint.dispatch() or sum(verdicts(endpoint).values()))
    assert called == [pattern for pattern in PATTERNS if pattern in (wanted or set())]


def dispatched(endpoint: Endpoint, count: int) -> None:
    """Dispatch until so many messages were taken."""
    total = 0

    def done() -> bool:
        nonlocal total
        total += endpoint.dispatch()
        return total >= count

    wait(done, f"{count} messages")
    assert total == count


class Log:
    """Callbacks that write down what they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self._made: dict[str, Callable[[Message], None]] = {}

    def __call__(self, name: str) -> Callable[[Message], None]:
        return self._made.setdefault(name, lambda message: self.calls.append((name, message.payload)))

    def taken(self) -> list[tuple[str, bytes]]:
        calls, self.calls = self.calls, []
        return calls


def test_callbacks_are_called_in_the_order_in_which_they_came(segment: Segment) -> None:
    endpoint, log = segment.endpoint("a"), Log()
    for number, pattern in enumerate(["x/>", "x/y", "", "x/*", "x/y"]):
        endpoint.listen(pattern, log(str(number)))
    endpoint.listen("y", log("never"))
    endpoint.send("x/y", "1")
    endpoint.send("x/z", "2")
    dispatched(endpoint, 2)
    assert log.taken() == [(name, b"1") for name in "01234"] + [(name, b"2") for name in "023"]


def test_a_callback_gets_the_message_as_recv_would_give_it(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    found: list[Message] = []
    endpoint.listen("", found.append)
    seq = endpoint.send("b", "x", BYTES)
    dispatched(endpoint, 1)
    assert found[0][:6] == ("b", seq, "x", BYTES, "plain", f"127.0.0.1:{segment.port}")


def test_dispatch_counts_messages_also_those_that_nobody_listens_for(segment: Segment) -> None:
    endpoint, log = segment.endpoint("a"), Log()
    assert endpoint.dispatch() == 0
    endpoint.listen("x", log("x"))
    for chan in ("x", "y", "!", "!b"):
        endpoint.send(chan)
    dispatched(endpoint, 3)
    assert len(log.calls) == 2
    assert verdicts(endpoint) == {"accepted": 3, "not_addressed": 1}
    assert endpoint.recv(0) is None


def test_one_dispatch_takes_a_bounded_number(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.client.endpoint.MAX_TAKEN", 4)
    endpoint = segment.endpoint("a")
    for _ in range(10):
        endpoint.send("x")
    assert select.select([endpoint], [], [], PATIENCE)[0]
    counts = [endpoint.dispatch() for _ in range(3)]
    assert counts == [4, 4, 2]


def test_listening_twice_calls_twice_and_is_taken_back_once_each(segment: Segment) -> None:
    endpoint, log = segment.endpoint("a"), Log()
    endpoint.listen("x", log("one"))
    endpoint.listen("x", log("one"))
    endpoint.listen("x/", log("one"))
    for left in (2, 1, 0):
        endpoint.send("x")
        dispatched(endpoint, 1)
        assert len(log.taken()) == left
        assert endpoint.unlisten("x", log("one")) is (left > 0)
    assert endpoint.unlisten("x/", log("two")) is False
    assert endpoint.unlisten("x/>", log("one")) is False
    assert endpoint.unlisten("x/", log("one")) is True
    endpoint.send_all()
    dispatched(endpoint, 1)
    assert log.taken() == []


def test_a_method_is_taken_back_like_any_callback(segment: Segment) -> None:
    class Program:
        def on_message(self, message: Message) -> None:
            raise AssertionError(message)

    endpoint, program = segment.endpoint("a"), Program()
    endpoint.listen("x", program.on_message)
    assert endpoint.unlisten("x", program.on_message)
    endpoint.send("x")
    dispatched(endpoint, 1)


def test_a_callback_may_take_back_itself_and_others_and_add_some(segment: Segment) -> None:
    endpoint, log = segment.endpoint("a"), Log()

    def once(message: Message) -> None:
        log("once")(message)
        assert endpoint.unlisten("x", once)
        assert endpoint.unlisten("x", log("other"))
        endpoint.listen("x", log("new"))

    endpoint.listen("x", log("first"))
    endpoint.listen("x", once)
    endpoint.listen("x", log("other"))
    endpoint.listen("x", log("last"))
    for payload in ("1", "2"):
        endpoint.send("x", payload)
    dispatched(endpoint, 2)
    # What was added hears the next message, not the one that is being told.
    assert log.taken() == [
        *[("first", b"1"), ("once", b"1"), ("last", b"1")],
        *[("first", b"2"), ("last", b"2"), ("new", b"2")],
    ]


def test_a_callback_that_raises_ends_the_dispatch_and_costs_one_message(segment: Segment) -> None:
    endpoint, log = segment.endpoint("a"), Log()

    def fails(message: Message) -> None:
        if message.payload == b"bad":
            raise ZeroDivisionError

    endpoint.listen("x", log("before"))
    endpoint.listen("x", fails)
    endpoint.listen("x", log("behind"))
    for payload in ("good", "bad", "next"):
        endpoint.send("x", payload)
    with pytest.raises(ZeroDivisionError):
        dispatched(endpoint, 2)
    dispatched(endpoint, 1)
    assert log.taken() == [
        *[("before", b"good"), ("behind", b"good")],
        ("before", b"bad"),
        *[("before", b"next"), ("behind", b"next")],
    ]


def test_a_callback_may_send_and_answer(segment: Segment) -> None:
    server, client = segment.endpoint("server/1"), segment.endpoint("client/1")
    server.listen("ask", lambda message: server.send_to(message.src, b"you said " + message.payload))
    client.send("ask", "hello")
    dispatched(server, 1)
    assert heard(client).payload == b"hello"
    assert heard(client)[:5] == ("server/1", server.seq - 1, "!client/1", b"you said hello", "directed")


def test_a_callback_may_close(segment: Segment) -> None:
    endpoint, log = segment.endpoint("a"), Log()
    endpoint.listen("x", lambda _message: endpoint.close())
    endpoint.listen("x", log("behind"))
    endpoint.send("x", "1")
    endpoint.send("x", "2")
    assert select.select([endpoint], [], [], PATIENCE)[0]
    assert endpoint.dispatch() == 1
    assert log.taken() == [("behind", b"1")]


def test_dispatch_also_takes_what_receive_has_put_aside(segment: Segment) -> None:
    endpoint, log = segment.endpoint("a"), Log()
    endpoint.listen("", log("all"))
    for payload in ("1", "2"):
        endpoint.send("x", payload)
    wait(lambda: endpoint.receive("y") or endpoint.stats()["QMC"].get("x") == 2)
    endpoint.send("y", "3")
    dispatched(endpoint, 3)
    assert log.taken() == [("all", b"1"), ("all", b"2"), ("all", b"3")]


# -- in a program's own loop


def test_in_a_select_loop_messages_arrive_without_busy_waiting(segment: Segment) -> None:
    endpoint, other, log = segment.endpoint("a"), segment.endpoint("b"), Log()
    endpoint.listen("x", log("x"))
    assert select.select([endpoint], [], [], 0.01)[0] == []
    rounds = 0
    for number in range(5):
        with soon(lambda number=number: other.send("x", str(number)), 0.02):  # type: ignore[misc]
            while len(log.calls) == number:
                assert select.select([endpoint], [], [], PATIENCE)[0] == [endpoint]
                endpoint.dispatch()
                rounds += 1
    assert log.taken() == [("x", b"%d" % number) for number in range(5)]
    assert rounds == 5
    assert select.select([endpoint], [], [], 0)[0] == []


@pytest.mark.parametrize("kind", ["poll", "epoll"])
def test_in_a_poll_loop_messages_arrive(segment: Segment, kind: str) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    with contextlib.ExitStack() as ends:
        poll: Any = getattr(select, kind)()
        if kind == "epoll":
            ends.enter_context(poll)
        poll.register(endpoint, select.POLLIN)
        assert poll.poll(0) == []
        other.send("x", "1")
        assert poll.poll(PATIENCE) == [(endpoint.fileno(), select.POLLIN)]
        message = endpoint.recv(0)
        assert message is not None
        assert message.payload == b"1"
        assert poll.poll(0) == []


def test_in_asyncio_messages_arrive_without_busy_waiting(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    calls = 0

    def on_readable() -> None:
        nonlocal calls
        calls += 1
        endpoint.dispatch()

    async def program() -> list[bytes]:
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[bytes] = asyncio.Queue()
        endpoint.listen("x", lambda message: inbox.put_nowait(message.payload))
        loop.add_reader(endpoint.fileno(), on_readable)
        await asyncio.sleep(0.02)
        assert calls == 0
        found = []
        for number in range(5):
            loop.call_later(0.005, other.send, "x", str(number))
            found.append(await asyncio.wait_for(inbox.get(), PATIENCE))
        loop.remove_reader(endpoint.fileno())
        return found

    assert asyncio.run(program()) == [b"%d" % number for number in range(5)]
    assert calls == 5


# -- as the Perl module has it


def test_notify_is_true_or_false_and_then_error_says_why(segment: Segment) -> None:
    endpoint = segment.endpoint("a/b/1")
    assert endpoint.error() is None
    assert endpoint.notify("supply", "txnid=12345:avail=1234:rc=00") is True
    assert endpoint.notify("supply") is True
    assert endpoint.error() is None
    assert heard(endpoint)[:4] == ("a/b/1", endpoint.seq - 2, "supply", b"txnid=12345:avail=1234:rc=00")
    assert endpoint.notify("two words", "x") is False
    assert "'two words'" in (endpoint.error() or "")
    endpoint.close()
    assert endpoint.notify("x") is False
    assert endpoint.error() == "call open() first"


CLEARING: dict[str, Callable[[Endpoint], object]] = {
    "notify": lambda one: one.notify("x"),
    "send": lambda one: one.send("x"),
    "send_all": lambda one: one.send_all(),
    "send_to": lambda one: one.send_to("x"),
    "send_topic": lambda one: one.send_topic("x"),
    "open": lambda one: one.open(),
}
KEEPING: dict[str, Callable[[Endpoint], object]] = {
    "error": lambda one: one.error(),
    "stats": lambda one: one.stats(),
    "beat": lambda one: one.beat(),
    "a beat that fails": lambda one: one.beat("x" * 2000),
}


@pytest.mark.parametrize("call", CLEARING.values(), ids=CLEARING)
def test_an_error_is_cleared_by_the_next_operation(segment: Segment, call: Callable[[Endpoint], object]) -> None:
    endpoint = segment.endpoint("a")
    endpoint.notify("")
    assert endpoint.error()
    call(endpoint)
    assert endpoint.error() is None


@pytest.mark.parametrize("call", KEEPING.values(), ids=KEEPING)
def test_an_error_stays_until_then(segment: Segment, call: Callable[[Endpoint], object]) -> None:
    endpoint = segment.endpoint("a")
    endpoint.notify("")
    error = endpoint.error()
    call(endpoint)
    assert endpoint.error() == error
    assert error


def test_receive_takes_everything_and_gives_what_belongs_to_its_channel(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    for chan, payload in [("x", "1"), ("y", "2"), ("x", "3"), ("!", "4"), ("!a", "5"), ("!b", "6"), ("x/", "7")]:
        other.send(chan, payload)
    wait(lambda: endpoint.receive("nothing") or sum(verdicts(endpoint).values()) == 7)
    stats = endpoint.stats()
    assert stats["QMC"] == {"x": 2, "y": 1, "!": 1, "!a": 1, "x/": 1}
    assert stats["QSC"] == 5
    assert sorted(stats["SEEN_QS"]) == sorted(stats["ACTIVE_QS"]) == sorted(stats["QMC"])
    assert stats["TQMC"] == {"*": 6, **stats["QMC"]}
    # The others stay for later calls, each channel in its order.
    for chan, data in [("y", b"2"), ("x", b"1"), ("!a", b"5"), ("x", b"3"), ("x/", b"7"), ("!", b"4")]:
        message = endpoint.receive(chan)
        assert message is not None
        assert (message.src, message.chan, message.payload) == ("b", chan, data)
        assert message.peer.endswith(f":{segment.port}")
    for chan in ("x", "y", "!"):
        assert endpoint.receive(chan) is None
    stats = endpoint.stats()
    assert stats["QMC"] == {"x": 0, "y": 0, "!": 0, "!a": 0, "x/": 0}
    assert stats["ACTIVE_QS"] == []
    assert stats["QSC"] == 5
    assert stats["TQMC"]["*"] == 6


def test_receive_waits_until_its_time_is_over(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    assert endpoint.receive("x") is None
    assert endpoint.receive("x", -1) is None
    before = time.monotonic()
    assert endpoint.receive("x", 0.03) is None
    assert time.monotonic() >= before + 0.03


def test_receive_waits_for_a_message_of_its_channel_to_come(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    with soon(lambda: other.send("x", "at last")):
        message = endpoint.receive("x", PATIENCE)
    assert message is not None
    assert message.payload == b"at last"


def test_a_message_of_any_channel_ends_the_wait_so_that_the_caller_can_look_after_it(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    before = time.monotonic()
    with soon(lambda: other.send("y", "for later")):
        assert endpoint.receive("x", PATIENCE) is None
    assert time.monotonic() < before + PATIENCE
    message = endpoint.receive("y")
    assert message is not None
    assert message.payload == b"for later"


def test_with_messages_of_other_channels_there_receive_does_not_wait(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    other.send("y", "for later")
    assert select.select([endpoint], [], [], PATIENCE)[0]
    before = time.monotonic()
    assert endpoint.receive("x", 2.0) is None
    assert time.monotonic() < before + 2.0


def test_with_a_message_of_its_channel_waiting_receive_does_not_wait(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    for payload in ("1", "2"):
        endpoint.send("x", payload)
    wait(lambda: endpoint.receive("y") or endpoint.stats()["QMC"].get("x") == 2)
    before = time.monotonic()
    for data in (b"1", b"2"):
        message = endpoint.receive("x", PATIENCE)
        assert message is not None
        assert message.payload == data
    assert time.monotonic() < before + PATIENCE


def test_recv_gives_what_was_put_aside_first_in_the_order_of_its_coming(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    for number, chan in enumerate("xyxzyx"):
        endpoint.send(chan, str(number))
    wait(lambda: endpoint.receive("nothing") or endpoint.stats()["TQMC"]["*"] == 6)
    endpoint.send("x", "6")
    assert [heard(endpoint).payload for _ in range(7)] == [b"%d" % number for number in range(7)]


def test_what_waits_in_channels_is_there_after_closing(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    endpoint.send("x", "1")
    wait(lambda: endpoint.receive("nothing") or endpoint.stats()["QSC"])
    endpoint.close()
    assert heard(endpoint).payload == b"1"
    assert refused(lambda: endpoint.recv(0)).reason == "not_open"


def test_stats_of_one_that_has_heard_nothing(segment: Segment) -> None:
    empty = {
        "QSC": 0,
        "SEEN_QS": [],
        "ACTIVE_QS": [],
        "QMC": {},
        "TQMC": {"*": 0},
        "VERDICTS": {},
        "DROPPED": 0,
    }
    assert segment.closed("a").stats() == empty
    assert segment.endpoint("a", dedup=True, speed_window=5).stats() == {
        **empty,
        "DDC": 0,
        "DDO": None,
        "SS": {"*": 0.0},
    }


def test_stats_tell_what_dedup_remembers(segment: Segment) -> None:
    endpoint = segment.endpoint("a", dedup=True)
    before = time.time()
    for number in range(3):
        endpoint.send("x", str(number))
    assert len(until_now(endpoint)) == 3
    stats = endpoint.stats()
    assert stats["DDC"] == 4
    assert before - 0.001 <= stats["DDO"] <= time.time() + 0.001  # as exact as a float is


def test_speeds_are_over_the_last_messages_and_fall_in_silence(segment: Segment) -> None:
    endpoint = segment.endpoint("a", speed_window=3)
    for chan in "xxxxxy":
        endpoint.send(chan)
    assert len([heard(endpoint) for _ in range(6)]) == 6
    first = endpoint.stats()["SS"]
    assert sorted(first) == ["*", "x", "y"]
    assert min(first.values()) > 0
    time.sleep(0.05)
    second = endpoint.stats()["SS"]
    assert all(second[chan] < first[chan] for chan in first)
    # Five messages of x, of which three count; one of y.
    assert second["x"] <= 3 / 0.05
    assert second["y"] <= 1 / 0.05
    assert "SS" not in segment.closed("b").stats()


def test_a_channel_called_like_the_sum_does_not_stand_in_its_place(segment: Segment) -> None:
    endpoint = segment.endpoint("a", speed_window=5)
    for chan in ("x", "y", "*"):
        endpoint.send(chan)
    assert len([heard(endpoint) for _ in range(3)]) == 3
    assert endpoint.stats()["TQMC"]["*"] == 3


# -- copies


def test_with_dedup_a_message_comes_once(segment: Segment) -> None:
    endpoint = segment.endpoint("a", dedup=True)
    one = datagram("b", 1, "x", "p")
    different = [
        datagram("c", 1, "x", "p"),
        datagram("b", 2, "x", "p"),
        datagram("b", 1, "y", "p"),
    ]
    # The payload does not tell messages apart, where there is a sender.
    segment.wire.send(one, one, *different, *different, datagram("b", 1, "x", "q"), one)
    messages = judged(endpoint, 10)
    assert [message[:3] for message in messages] == [("b", 1, "x"), ("c", 1, "x"), ("b", 2, "x"), ("b", 1, "y")]
    assert verdicts(endpoint) == {"accepted": 4, "duplicate": 6}
    assert endpoint.stats()["DDC"] == 4
    assert endpoint.stats()["TQMC"]["*"] == 4


def test_without_dedup_copies_are_messages(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    segment.wire.send(*[datagram("b", 1, "x", "p")] * 3)
    assert len(judged(endpoint, 3)) == 3
    endpoint.clear_dedup()
    endpoint.clear_dedup(5)
    assert not {"DDC", "DDO"} & set(endpoint.stats())


def test_the_same_name_at_another_address_is_another_sender(segment: Segment) -> None:
    endpoint = segment.endpoint("a", dedup=True)
    for host in ("127.0.0.1", "127.0.0.2"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            other.bind((host, 0))
            other.sendto(datagram("b", 1, "x"), (BROADCAST, segment.port))
    assert [message.peer.partition(":")[0] for message in judged(endpoint, 2)] == ["127.0.0.1", "127.0.0.2"]


def test_the_same_name_from_another_port_is_the_same_sender_but_for_the_unknown(segment: Segment) -> None:
    endpoint = segment.endpoint("a", dedup=True)
    with ExitStack() as ends:
        for _ in range(2):
            other = ends.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            other.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            for raw in (
                *(datagram("b", 1, "x", "1"), datagram("b", 1, "x", "2")),
                *(datagram("?", 1, "x", "1"), datagram("?", 1, "x", "2"), datagram("?", 1, "x", "1")),
            ):
                other.sendto(raw, (BROADCAST, segment.port))
        messages = judged(endpoint, 10)
    assert [(message.src, message.payload) for message in messages] == [
        *[("b", b"1"), ("?", b"1"), ("?", b"2")],
        *[("?", b"1"), ("?", b"2")],
    ]
    assert len({message.peer for message in messages if message.src == "?"}) == 2
    assert verdicts(endpoint) == {"accepted": 5, "duplicate": 5}


def test_what_was_cleared_comes_in_again(segment: Segment) -> None:
    endpoint = segment.endpoint("a", dedup=True)
    one, two = datagram("b", 1, "x"), datagram("b", 2, "x")
    segment.wire.send(one, one)
    assert len(judged(endpoint, 2)) == 1
    time.sleep(0.1)
    between = time.time()
    time.sleep(0.1)
    segment.wire.send(two)
    assert len(judged(endpoint, 3)) == 1
    endpoint.clear_dedup(3600)
    assert endpoint.stats()["DDC"] == 2
    endpoint.clear_dedup(time.time() - between)
    assert endpoint.stats()["DDC"] == 1
    assert endpoint.stats()["DDO"] > between
    segment.wire.send(one, two)
    assert [message.seq for message in judged(endpoint, 5)] == [1]
    endpoint.clear_dedup()
    assert (endpoint.stats()["DDC"], endpoint.stats()["DDO"]) == (0, None)
    segment.wire.send(one, two)
    assert [message.seq for message in judged(endpoint, 7)] == [1, 2]


def test_what_is_dropped_for_another_reason_is_not_remembered(segment: Segment) -> None:
    endpoint = segment.endpoint("a", dedup=True, keys=[KEY])
    segment.wire.send(datagram("b", 1, "!c", "", KEY), datagram("b", 2, "x"), datagram("b", 3, "x", "", OTHER_KEY))
    assert judged(endpoint, 3) == []
    assert endpoint.stats()["DDC"] == 0
    segment.wire.send(datagram("b", 2, "x", "", KEY), datagram("b", 3, "x", "", KEY))
    assert len(judged(endpoint, 5)) == 2


# -- integrity


def pem(private: Ed25519PrivateKey | ec.EllipticCurvePrivateKey, phrase: bytes = b"") -> bytes:
    encryption = BestAvailableEncryption(phrase) if phrase else NoEncryption()
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def public_pem(private: Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def body(src: str, seq: int, chan: str, payload: bytes = b"") -> bytes:
    return f"{src}:{seq}:{chan}|".encode() + payload


def checked(algo: str, total: str, inner: bytes) -> bytes:
    """A datagram with a check that is what it is."""
    return b"BCCN1[%d:%s=%s]%b" % (len(inner), algo.encode(), total.encode(), inner)


def hmac_of(inner: bytes) -> str:
    return hmac.digest(KEY, inner, "sha256")[:8].hex()


def test_each_algorithm_puts_its_own_check_on_the_wire(segment: Segment) -> None:
    wire = segment.wire
    private = Ed25519PrivateKey.generate()
    inner = body("a", 1, "x", b"p")
    expected = {
        "none": b"BCCN1[7]a:1:x|p",
        "crc32": checked("crc32", f"{zlib.crc32(inner):08x}", inner),
        "hmac": datagram("a", 1, "x", "p", KEY),
        "sig": checked("sig", private.sign(inner).hex(), inner),
    }
    for algorithm, raw in expected.items():
        keys = {"hmac": [KEY], "sig": [pem(private)]}.get(algorithm, [])
        endpoint = segment.endpoint("a", algorithm=algorithm, keys=keys)
        endpoint.seq = 1
        endpoint.send("x", "p")
        assert wire.hear(b"BCCN1") == raw
        endpoint.close()


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ({}, "accepted"),
        ({"algorithm": "none"}, "accepted"),
        ({"keys": [KEY]}, "integrity_missing"),
        ({"algorithm": "crc32"}, "integrity_missing"),
        ({"keys": [KEY], "required": False}, "accepted"),
        ({"algorithm": "crc32", "required": False}, "accepted"),
        ({"keys": [KEY], "accept_unverifiable": True}, "integrity_missing"),
    ],
    ids=str,
)
def test_what_carries_no_check(segment: Segment, options: dict[str, Any], verdict: str) -> None:
    endpoint = segment.endpoint("a", **options)
    segment.wire.send(datagram("b", 1, "x"))
    assert len(judged(endpoint, 1)) == (verdict == "accepted")
    assert verdicts(endpoint) == {verdict: 1}


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ({"keys": [KEY]}, "accepted"),
        ({"keys": [KEY.decode()]}, "accepted"),
        ({"keys": [OTHER_KEY, KEY]}, "accepted"),
        ({"keys": (KEY, OTHER_KEY), "required": False}, "accepted"),
        ({"keys": [OTHER_KEY]}, "integrity_failed"),
        ({"keys": [OTHER_KEY], "required": False, "accept_unverifiable": True}, "integrity_failed"),
        ({}, "integrity_unknown"),
        ({"required": False}, "integrity_unknown"),
        ({"algorithm": "crc32"}, "integrity_unknown"),
        ({"algorithm": "crc32", "required": False}, "integrity_unknown"),
        ({"accept_unverifiable": True}, "accepted"),
        ({"algorithm": "crc32", "accept_unverifiable": True}, "accepted"),
    ],
    ids=str,
)
def test_what_is_signed_by_hmac(segment: Segment, options: dict[str, Any], verdict: str) -> None:
    endpoint = segment.endpoint("a", **options)
    segment.wire.send(datagram("b", 1, "x", "p", KEY))
    assert len(judged(endpoint, 1)) == (verdict == "accepted")
    assert verdicts(endpoint) == {verdict: 1}


def test_a_check_that_does_not_fit_is_no_check(segment: Segment) -> None:
    by_key, by_crc = segment.endpoint("a", keys=[KEY]), segment.endpoint("a", algorithm="crc32")
    signed, inner = datagram("b", 1, "x", "p", KEY), body("b", 1, "x", b"p")
    total = f"{zlib.crc32(inner):08x}"
    forged = {
        "hmac": [
            signed[:-1] + b"q",
            signed.replace(b"b:1", b"c:1"),
            checked("hmac", hmac_of(inner).upper(), inner),
            checked("hmac", hmac_of(inner)[:8], inner),
            checked("hmac", hmac_of(inner) + "0", inner),
        ],
        "crc32": [
            checked("crc32", "00000000", inner),
            checked("crc32", total + "0", inner),
            checked("crc32", total, body("b", 1, "x", b"q")),
        ],
    }
    segment.wire.send(*forged["hmac"], *forged["crc32"])
    for endpoint, name in ((by_key, "hmac"), (by_crc, "crc32")):
        assert judged(endpoint, 8) == []
        # What is of the other kind cannot be told here.
        assert verdicts(endpoint) == {"integrity_failed": len(forged[name]), "integrity_unknown": 8 - len(forged[name])}
    segment.wire.send(signed, checked("crc32", total, inner))
    for endpoint in (by_key, by_crc):
        assert payloads(judged(endpoint, 10)) == [b"p"]


def test_keys_are_changed_without_losing_a_message(segment: Segment) -> None:
    """The first key signs, all verify: at each step of a change whoever stands at the step before or behind it hears
    and is heard."""
    steps = [[KEY], [KEY, OTHER_KEY], [OTHER_KEY, KEY], [OTHER_KEY]]
    fleet = [segment.endpoint(f"step/{number}", keys=keys) for number, keys in enumerate(steps)]
    for endpoint in fleet:
        endpoint.send("x", endpoint.name)
    heard_by = [{message.src for message in judged(endpoint, len(fleet))} for endpoint in fleet]
    for number, sources in enumerate(heard_by):
        assert {f"step/{near}" for near in (number - 1, number, number + 1) if 0 <= near < len(steps)} <= sources
    assert heard_by[0] == {"step/0", "step/1"}
    assert heard_by[3] == {"step/2", "step/3"}
    assert verdicts(fleet[0]) == {"accepted": 2, "integrity_failed": 2}


def test_one_message_may_be_signed_with_another_key(segment: Segment) -> None:
    wire = segment.wire
    plain, usual = segment.endpoint("a"), segment.endpoint("b", keys=[KEY])
    for endpoint in (plain, usual):
        for seq in (
            endpoint.send("x", "p", key=OTHER_KEY),
            endpoint.send(None, "x", "p", key=OTHER_KEY.decode()),
            endpoint.send_topic("x", "p", key=OTHER_KEY),
        ):
            assert wire.hear(b":%d:" % seq) == datagram(endpoint.name, seq, "x", "p", OTHER_KEY)
        seq = endpoint.send_all("p", key=OTHER_KEY)
        assert wire.hear(b":%d:" % seq) == datagram(endpoint.name, seq, "!", "p", OTHER_KEY)
        seq = endpoint.send_to("c", "p", key=OTHER_KEY)
        assert wire.hear(b":%d:" % seq) == datagram(endpoint.name, seq, "!c", "p", OTHER_KEY)
    seq = usual.send("x", "p")  # the next one is as usual
    assert wire.hear(b":%d:" % seq) == datagram("b", seq, "x", "p", KEY)
    assert payloads(judged(usual, 11)) == [b"p"]
    assert verdicts(usual) == {"accepted": 1, "integrity_failed": 10}


def test_signatures_are_verified_by_the_key_of_the_longest_prefix(segment: Segment) -> None:
    host, program, rest, stranger = (Ed25519PrivateKey.generate() for _ in range(4))
    signers: Mapping[str, Sequence[bytes | str]] = {
        "h": [public_pem(host)],
        "h/p": [public_pem(rest), public_pem(program).decode()],
        "": [public_pem(rest)],
    }
    receiver = segment.endpoint("r", algorithm="sig", signers=signers)
    table = [
        ("h/q/1", host, "accepted"),
        ("h", host, "accepted"),
        ("h/p/1", program, "accepted"),
        ("h/p/1", rest, "accepted"),
        ("h/p/1", host, "integrity_failed"),
        ("h/q/1", rest, "integrity_failed"),
        ("h/q/1", stranger, "integrity_failed"),
        ("h2/q/1", rest, "accepted"),
        ("h2/q/1", host, "integrity_failed"),
        ("?", rest, "accepted"),
    ]
    for number, (name, private, _) in enumerate(table):
        sender = segment.endpoint(name, algorithm="sig", keys=[pem(private)])
        sender.send("x", str(number))
        sender.close()
    messages = judged(receiver, len(table))
    assert payloads(messages) == [b"%d" % n for n, (*_, verdict) in enumerate(table) if verdict == "accepted"]
    assert verdicts(receiver) == {"accepted": 6, "integrity_failed": 4}


@pytest.mark.parametrize(("accept", "verdict"), [(False, "integrity_unknown"), (True, "accepted")])
def test_a_signature_of_somebody_without_a_key_cannot_be_verified(segment: Segment, accept: bool, verdict: str) -> None:
    private = Ed25519PrivateKey.generate()
    signers = {"h": [public_pem(private)]}
    receiver = segment.endpoint("r", algorithm="sig", signers=signers, accept_unverifiable=accept)
    sender = segment.endpoint("other/1", algorithm="sig", keys=[pem(private)])
    sender.send("x")
    judged(receiver, 1)
    assert verdicts(receiver) == {verdict: 1}


def test_who_has_only_public_keys_cannot_send(segment: Segment) -> None:
    endpoint = segment.endpoint("a", algorithm="sig", signers={"": [public_pem(Ed25519PrivateKey.generate())]})
    seq = endpoint.seq
    assert refused(lambda: endpoint.send("x")).reason == "no_signing_key"
    assert endpoint.notify("x") is False
    assert "private key" in (endpoint.error() or "")
    assert endpoint.seq == seq


ED25519 = Ed25519PrivateKey.generate()
CURVE = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "md5"},
        {"algorithm": "md5", "keys": [KEY]},
        {"algorithm": "hmac"},
        {"algorithm": "hmac", "keys": []},
        {"algorithm": "sig", "keys": [KEY]},
        {"algorithm": "sig", "keys": [public_pem(ED25519)]},
        {"algorithm": "sig", "keys": [pem(CURVE)]},
        {"algorithm": "sig", "keys": [pem(ED25519, b"a phrase")]},
        {"algorithm": "sig", "signers": {"a": [KEY]}},
        {"algorithm": "sig", "signers": {"a": [pem(ED25519)]}},
        {"algorithm": "sig", "signers": {"a": [public_pem(ED25519), public_pem(CURVE)]}},
    ],
    ids=[
        *("no such algorithm", "nor with a key", "hmac without", "hmac with none", "sig with a shared key"),
        *("sig with a public key", "another curve", "with a phrase", "no public key", "a private one in its place"),
        "another public curve",
    ],
)
def test_keys_that_are_none_are_refused_at_once(options: dict[str, Any]) -> None:
    error = refused(lambda: Endpoint("a", BROADCAST, 5400, **options))
    assert error.reason == "bad_key"
    assert error.detail


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"keys": KEY.decode()}, id="one text is taken for a key per character"),
        pytest.param({"keys": KEY}, id="bytes are taken for a key per byte"),
        pytest.param({"keys": [b""]}, id="an empty key protects nothing"),
        pytest.param({"keys": [KEY], "algorithm": "none"}, id="a key that is never used"),
        pytest.param({"keys": [KEY], "algorithm": "crc32"}, id="a key that crc32 never uses"),
        pytest.param({"keys": [pem(ED25519)]}, id="a key for signatures, used as a shared one"),
        pytest.param({"keys": [pem(ED25519)] * 2, "algorithm": "sig"}, id="a second private key"),
        pytest.param({"keys": [KEY], "signers": {"a": [public_pem(ED25519)]}}, id="public keys that hmac never uses"),
    ],
)
def test_keys_that_would_not_protect_are_refused_at_once(options: dict[str, Any]) -> None:
    assert refused(lambda: Endpoint("a", BROADCAST, 5400, **options)).reason == "bad_key"


def test_an_empty_key_for_one_message_is_refused(segment: Segment) -> None:
    assert refused(lambda: segment.endpoint("a").send("x", key="")).reason == "bad_key"


# -- hostile input


HOSTILE: list[tuple[bytes, str]] = [
    (b"", "bad_envelope"),
    (b"\0", "bad_envelope"),
    (BYTES, "bad_envelope"),
    (b"GET / HTTP/1.1\r\n\r\n", "bad_envelope"),
    (b"BCCN1", "bad_envelope"),
    (b"BCCN1[", "bad_envelope"),
    (b"BCCN1[]", "bad_envelope"),
    (b"BCCN1[-1]", "bad_envelope"),
    (b"BCCN1[07]a:1:x|p", "bad_envelope"),
    (b"BCCN1[7:]a:1:x|p", "bad_envelope"),
    (b"BCCN1[7:hmac=]a:1:x|p", "bad_envelope"),
    (b"[7]a:1:x|p", "bad_envelope"),
    (b"BCCN1[8]a:1:x|p", "length_mismatch"),
    (b"BCCN1[6]a:1:x|p", "length_mismatch"),
    (b"BCCN1[99999]a:1:x|p", "length_mismatch"),
    (b"BCCN2[7]a:1:x|p", "unsupported_version"),
    (b"BCCN1[7:hmac=0123456789abcdef]a:1:x|p", "integrity_unknown"),
    (b"BCCN1[0]", "bad_body"),
    (b"BCCN1[6]a:1:xp", "bad_body"),
    (b"BCCN1[5]a:1|p", "bad_body"),
    (b"BCCN1[9]a:1:x:y|p", "bad_body"),
    (b"BCCN1[6]:1:x|p", "bad_src"),
    (b"BCCN1[8]a/:1:x|p", "bad_src"),
    (b"BCCN1[7]*:1:x|p", "bad_src"),
    (b"BCCN1[7]\xff:1:x|p", "bad_src"),
    (b"BCCN1[6]a::x|p", "bad_seq"),
    (b"BCCN1[8]a:-1:x|p", "bad_seq"),
    (b"BCCN1[7]a:\xb9:x|p", "bad_seq"),
    (b"BCCN1[26]a:18446744073709551616:x|p", "bad_seq"),
    (b"BCCN1[6]a:1:|p", "bad_channel"),
    (b"BCCN1[7]a:1: |p", "bad_channel"),
    (b"BCCN1[8]a:1:!?|p", "bad_target"),
    (b"BCCN1[9]a:1:!/x|p", "bad_target"),
    (b"BCCN1[9]a:1:!zz|p", "not_addressed"),
    (datagram("a", 1, "x", b"." * 1500), "oversize"),
    (b"\xff" * 9000, "oversize"),
    (b"\xff" * 65_507, "oversize"),
    (b"BCCN1[7]a:1:x|p", "accepted"),
]


def test_what_is_not_acceptable_is_counted_and_never_raises(segment: Segment) -> None:
    endpoint = segment.endpoint("me", dedup=True)
    expected: dict[str, int] = {}
    for number, (raw, verdict) in enumerate(HOSTILE, start=1):
        segment.wire.send(raw)
        messages = judged(endpoint, number)
        expected[verdict] = expected.get(verdict, 0) + 1
        assert verdicts(endpoint) == expected, raw[:60]
        assert len(messages) == (verdict == "accepted")
    # Nothing of it has left a trace elsewhere.
    stats = endpoint.stats()
    assert (stats["QSC"], stats["TQMC"], stats["DDC"], stats["DROPPED"]) == (1, {"*": 1, "x": 1}, 1, 0)
    for call in (endpoint.dispatch, lambda: endpoint.receive("x"), lambda: endpoint.recv(0)):
        segment.wire.send(*(raw for raw, _ in HOSTILE[:20]))
        call()
    assert endpoint.error() is None


@pytest.mark.parametrize("largest", [120, 1500, 65_507])
def test_a_datagram_is_accepted_up_to_the_length_that_was_set(segment: Segment, largest: int) -> None:
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


DOORS: dict[str, dict[str, Any]] = {
    "none": {},
    "crc32": {"algorithm": "crc32", "required": False},
    "hmac": {"keys": [KEY]},
    "sig": {"algorithm": "sig", "signers": {"a": [public_pem(ED25519)]}, "accept_unverifiable": True},
}
_fields = st.binary(max_size=20) | st.sampled_from([b"a", b"?", b"me/1", b"!", b"!me", b"x/y", b"1", b"a/b/1"])
_bodies = st.builds(lambda *parts: b"%b:%b:%b|%b" % parts, _fields, _fields, _fields, st.binary(max_size=40))
_almost = st.builds(
    lambda magic, change, check, inner: b"%b[%d%b]%b" % (magic, max(0, len(inner) + change), check, inner),
    st.sampled_from([b"BCCN1", b"BCCN1", b"BCCN2", b""]),
    st.sampled_from([0, 0, 0, 0, 1, -1]),
    st.sampled_from([b"", b":crc32=00000000", b":hmac=0123456789abcdef", b":sig=" + b"0" * 128, b":x=y", b":"]),
    _bodies | st.binary(max_size=60),
)


@pytest.mark.parametrize("door", DOORS)
@given(raw=st.binary(max_size=200) | _almost, address=st.sampled_from([("10.0.0.1", 9), ("fe80::1%eth0", 9, 0, 2)]))
def test_whatever_comes_is_a_message_or_has_a_verdict(door: str, raw: bytes, address: tuple[Any, ...]) -> None:
    endpoint = Endpoint("me/1", dedup=True, **DOORS[door])
    for _ in range(2):
        found = endpoint._judge(raw, address, 1_000)
        if isinstance(found, Message):
            assert raw.endswith(found.payload)
            assert found.form in ("plain", "all", "directed")
        else:
            assert NAMES[found] not in ("accepted", "reordered", "restart", "internal_error")


def test_a_flood_of_channels_is_capped_and_the_one_silent_for_longest_goes_first(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccnd.client.endpoint.MAX_CHANNELS", 4)
    endpoint = segment.endpoint("a", speed_window=2)
    for chan in ["k", "x0", "x1", "k", "x2", "x3", "x4", "k", "x5"]:
        endpoint.send(chan, chan)
    wait(lambda: endpoint.receive("nothing") or endpoint.stats()["TQMC"]["*"] == 9)
    stats = endpoint.stats()
    assert stats["SEEN_QS"] == ["x3", "x4", "k", "x5"]
    assert stats["QSC"] == 4
    assert stats["QMC"] == {"x3": 1, "x4": 1, "k": 3, "x5": 1}
    assert stats["DROPPED"] == 3
    assert sorted(stats["SS"]) == ["*", "k", "x3", "x4", "x5"]
    assert endpoint.receive("x0") is None
    assert [message.payload for message in iter(lambda: endpoint.recv(0), None)] == [
        *[b"k", b"k", b"x3", b"x4", b"k", b"x5"]
    ]
    assert endpoint.stats()["ACTIVE_QS"] == []


def test_what_waits_is_capped_and_what_found_no_room_is_counted(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccnd.client.endpoint.MAX_QUEUED", 5)
    endpoint = segment.endpoint("a")
    for number in range(12):
        endpoint.send(f"x{number % 3}", str(number))
    wait(lambda: endpoint.receive("nothing") or endpoint.stats()["TQMC"]["*"] == 12)
    stats = endpoint.stats()
    assert stats["QMC"] == {"x0": 2, "x1": 2, "x2": 1}
    assert stats["DROPPED"] == 7
    assert verdicts(endpoint) == {"accepted": 12}
    # As soon as something was taken there is room again.
    assert heard(endpoint).payload == b"0"
    endpoint.send("x9", "room")
    wait(lambda: endpoint.receive("nothing") or endpoint.stats()["QMC"].get("x9") == 1)
    assert [message.payload for message in iter(lambda: endpoint.recv(0), None)] == [b"1", b"2", b"3", b"4", b"room"]
    assert endpoint.stats()["DROPPED"] == 7


def test_what_dedup_remembers_is_capped_and_the_oldest_goes_first(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bccnd.client.endpoint.MAX_REMEMBERED", 3)
    endpoint = segment.endpoint("a", dedup=True)
    segment.wire.send(*(datagram("b", number, "x") for number in (1, 2, 3, 4, 2, 3, 4, 1)))
    assert [message.seq for message in judged(endpoint, 8)] == [1, 2, 3, 4, 1]
    assert endpoint.stats()["DDC"] == 3


def test_one_receive_takes_a_bounded_number(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.client.endpoint.MAX_TAKEN", 4)
    endpoint = segment.endpoint("a")
    for _ in range(10):
        endpoint.send("x")
    assert select.select([endpoint], [], [], PATIENCE)[0]
    assert endpoint.receive("x") is not None
    assert endpoint.stats()["TQMC"]["*"] == 4


# -- heartbeats


def beats(endpoint: Endpoint, count: int) -> list[Message]:
    """The next heartbeats that an endpoint hears."""
    found: list[Message] = []
    while len(found) < count:
        message = heard(endpoint)
        if message.chan.startswith("heartbeat/"):
            found.append(message)
    return found


def test_heartbeats_come_at_once_and_again_with_rising_seqs(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a/b/1", keys=[KEY]), segment.endpoint("c", keys=[KEY])
    first = endpoint.seq
    endpoint.heartbeat_start(0.02, "all is well")
    found = beats(other, 4)
    assert {message[:5] for message in found} == {
        ("a/b/1", seq, "heartbeat/a/b/1", b"all is well", "plain") for seq in range(first, first + 4)
    }
    gaps = [later.received_ns - earlier.received_ns for earlier, later in pairwise(found)]
    assert sum(gaps) >= 0.02e9 * 2  # the last of three gaps may follow a late one
    endpoint.heartbeat_stop()


def test_a_heartbeat_is_sent_every_5_seconds_and_empty_unless_told_otherwise(segment: Segment) -> None:
    endpoint = segment.endpoint("a/b/1")
    endpoint.heartbeat_start()
    endpoint.heartbeat_stop()
    endpoint.beat()
    endpoint.beat(b"once more")
    assert payloads(until_now(endpoint)) == [b"", b"", b"once more"]


def threads_of_heartbeats() -> int:
    return sum(thread.name == "bccn-heartbeat" for thread in threading.enumerate())


def test_heartbeats_end_with_stop_with_close_and_with_another_start(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    before = threads_of_heartbeats()
    ends: list[Callable[[], object]] = [
        endpoint.heartbeat_stop,
        lambda: endpoint.heartbeat_start(3600),
        endpoint.close,
    ]
    for end in ends:
        endpoint.heartbeat_start(0.001)
        assert threads_of_heartbeats() == before + 1
        beats(other, 3)
        end()
        assert threads_of_heartbeats() == before + (endpoint._heartbeat is not None)
        endpoint.heartbeat_stop()
        endpoint.heartbeat_stop()
        until_now(other)
        time.sleep(0.01)
        assert until_now(other) == []
    endpoint.open()
    assert endpoint._heartbeat is None  # opening it again starts nothing by itself


def test_heartbeats_follow_the_name(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a/1"), segment.endpoint("b")
    endpoint.heartbeat_start(0.001)
    assert {message.chan for message in beats(other, 2)} == {"heartbeat/a/1"}
    endpoint.name = "a/2"
    until_now(other)
    assert {(message.src, message.chan) for message in beats(other, 2)} == {("a/2", "heartbeat/a/2")}


@pytest.mark.parametrize("interval", [0, -1, 0.0])
def test_an_interval_that_is_none_is_refused(segment: Segment, interval: float) -> None:
    assert refused(lambda: segment.endpoint("a").heartbeat_start(interval)).reason == "bad_interval"


def test_a_heartbeat_needs_a_name(segment: Segment) -> None:
    assert refused(lambda: segment.endpoint().heartbeat_start()).reason == "no_name"


@pytest.mark.parametrize("interval", [float("nan"), float("inf"), 1e12])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_interval_that_no_clock_knows_is_refused(segment: Segment, interval: float) -> None:
    endpoint = segment.endpoint("a")
    try:
        assert refused(lambda: endpoint.heartbeat_start(interval)).reason == "bad_interval"
    finally:
        endpoint.close()


@pytest.mark.parametrize(
    ("options", "status", "reason"),
    [
        ({}, "x" * 2000, "too_long"),
        ({"algorithm": "sig", "signers": {"": [public_pem(ED25519)]}}, "", "no_signing_key"),
    ],
    ids=["too long", "cannot be signed"],
)
def test_heartbeats_that_can_never_be_sent_are_refused(
    segment: Segment, options: dict[str, Any], status: str, reason: str
) -> None:
    assert refused(lambda: segment.endpoint("a", **options).heartbeat_start(1, status)).reason == reason


def test_a_heartbeat_never_clears_an_error_nor_makes_one(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    endpoint.notify("")
    error = endpoint.error()
    endpoint.heartbeat_start(0.001)
    beats(other, 20)
    assert endpoint.error() == error
    assert error
    endpoint.send("x")
    endpoint.beat("x" * 2000)
    beats(other, 2)
    assert endpoint.error() is None


# -- threads


@pytest.mark.parametrize("options", [{}, {"keys": [KEY]}], ids=["none", "hmac"])
def test_many_threads_send_and_no_seq_comes_twice_or_is_left_out(
    segment: Segment, hasty: None, options: dict[str, Any]
) -> None:
    endpoint, wire = segment.endpoint("a", **options), segment.wire
    first = endpoint.seq
    threads, each = 8, 25
    started = threading.Barrier(threads)
    taken: list[list[int]] = [[] for _ in range(threads)]

    def run(number: int) -> None:
        started.wait(PATIENCE)
        for count in range(each):
            taken[number].append(endpoint.send(f"x/{number}", str(count)))

    endpoint.heartbeat_start(0.0005)
    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    endpoint.heartbeat_stop()
    last = endpoint.seq
    heard_here: list[int] = []
    kinds = {b"x": 0, b"heartbeat": 0}
    while len(heard_here) < last - first:
        _, seq, rest = wire.hear(b"BCCN1").split(b":")[-3:]
        heard_here.append(int(seq))
        kinds[rest.partition(b"|")[0].partition(b"/")[0]] += 1
    assert heard_here == list(range(first, last))  # in order, too: a number is given and used in one step
    assert kinds[b"x"] == threads * each
    assert kinds[b"heartbeat"] > 1
    sent = sorted(seq for seqs in taken for seq in seqs)
    assert len(set(sent)) == threads * each
    assert set(sent) <= set(heard_here)
    for seqs in taken:
        assert seqs == sorted(seqs)


def test_a_message_that_was_refused_leaves_no_gap_among_those_of_other_threads(segment: Segment, hasty: None) -> None:
    endpoint = segment.endpoint("a")
    first = endpoint.seq
    sent: list[int] = []

    def good() -> None:
        for _ in range(50):
            sent.append(endpoint.send("x"))  # noqa: PERF401 - one by one, while others send

    def bad() -> None:
        for number in range(50):
            assert endpoint.notify("x", "." * 2000) is False
            assert endpoint.notify(f"bad channel {number}") is False

    running = [threading.Thread(target=run) for run in (good, bad, good, bad)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert sorted(sent) == list(range(first, first + 100))
    assert endpoint.seq == first + 100
