"""What a program straight on the segment receives: waiting, callbacks, and messages by channel."""

from __future__ import annotations

import select
import time

import pytest

from bccnd.client.message import Message
from bccnd.endpoint.endpoint import Endpoint
from tests.e2e.harness import datagram
from tests.endpoint.segments import Segment, heard, refused, soon, until_now, verdicts
from tests.support import PATIENCE, wait


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


def received(endpoint: Endpoint, chan: str, timeout: float = 0.0) -> bytes | None:
    message = endpoint.receive(chan, timeout)
    return message and message.payload


@pytest.mark.parametrize("timeout", [None, PATIENCE, 1e9, float("inf")])
def test_receiving_waits_for_a_message_to_come(segment: Segment, timeout: float | None) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    with soon(lambda: other.send("x", "at last")):
        message = endpoint.recv(timeout)
    assert message is not None
    assert message.payload == b"at last"
    if timeout is not None:
        with soon(lambda: other.send("x", "again")):
            assert received(endpoint, "x", timeout) == b"again"


def test_iterating_gives_messages_and_ends_with_the_socket(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    other.send("x", "1")
    other.send("!c", "not for us")
    other.send("y", "2")
    found = iter(endpoint)
    assert [next(found).payload, next(found).payload] == [b"1", b"2"]
    endpoint.close()
    assert refused(next, found).reason == "not_open"


def test_each_call_takes_a_bounded_number_of_datagrams(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.endpoint.endpoint.MAX_TAKEN", 10)
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    segment.wire.send(*[b"garbage"] * 50)
    other.send("x", "behind the flood")
    wait(lambda: segment.wire.receive(b"behind"))
    # Somebody can send faster than we read, and then there is no end to what can be read.
    assert endpoint.recv(0) is None
    assert verdicts(endpoint) == {"bad_envelope": 10}
    assert endpoint.dispatch() == 0
    assert endpoint.receive("x") is None
    wait(lambda: endpoint.recv(0), "what came behind the flood")
    assert endpoint.error() is None
    for _ in range(25):
        endpoint.send("x")
    assert select.select([endpoint], [], [], PATIENCE)[0]
    assert [endpoint.dispatch() for _ in range(3)] == [10, 10, 5]


# -- listeners


def dispatched(endpoint: Endpoint, count: int) -> None:
    """Dispatch until so many messages were taken."""
    total = 0

    def done() -> bool:
        nonlocal total
        total += endpoint.dispatch()
        return total >= count

    wait(done, f"{count} messages")
    assert total == count


def test_a_callback_gets_all_that_is_known_of_a_message(segment: Segment) -> None:
    """Which callbacks are called, and in which order: tests/client/test_router.py."""
    endpoint = segment.endpoint("a")
    found: list[Message] = []
    endpoint.listen("x/", found.append)
    seq = endpoint.send("b", "x/y", b"x")
    dispatched(endpoint, 1)
    assert found[0][:6] == ("b", seq, "x/y", b"x", "plain", f"127.0.0.1:{segment.port}")
    assert endpoint.unlisten("x/", found.append)  # a bound method is another object each time
    assert not endpoint.unlisten("x/", found.append)


def test_dispatch_takes_all_messages_also_put_aside_ones(segment: Segment) -> None:
    endpoint, called = segment.endpoint("a"), list[bytes]()
    assert endpoint.dispatch() == 0
    endpoint.listen("x", lambda message: called.append(message.payload))
    for chan in ("x", "y", "!", "!a", "!b"):
        endpoint.send(chan, chan)
    dispatched(endpoint, 4)
    assert called == [b"x", b"!", b"!a"]
    assert verdicts(endpoint) == {"accepted": 4, "not_addressed": 1}
    assert endpoint.recv(0) is None
    for payload in ("1", "2"):
        endpoint.send("x", payload)
    wait(lambda: endpoint.receive("z") or endpoint.stats()["QMC"].get("x") == 2)
    endpoint.send("x", "3")
    dispatched(endpoint, 3)
    assert called[3:] == [b"1", b"2", b"3"]


def test_a_callback_that_raises_ends_the_dispatch(segment: Segment) -> None:
    endpoint, called = segment.endpoint("a"), list[bytes]()

    def fails(message: Message) -> None:
        called.append(message.payload)
        raise ZeroDivisionError

    endpoint.listen("x", fails)
    for payload in (b"1", b"2"):
        endpoint.send("x", payload)
    for seen in ([b"1"], [b"1", b"2"]):
        with pytest.raises(ZeroDivisionError):
            dispatched(endpoint, 1)
        assert called == seen


def test_a_callback_may_answer_and_close(segment: Segment) -> None:
    server, client = segment.endpoint("server/1"), segment.endpoint("client/1")
    server.listen("ask", lambda message: server.send_to(message.src, b"you said " + message.payload))
    server.listen("end", lambda _message: server.close())
    client.send("ask", "hello")
    dispatched(server, 1)
    assert heard(client).payload == b"hello"
    assert heard(client)[:5] == ("server/1", server.seq - 1, "!client/1", b"you said hello", "directed")
    until_now(server)
    client.send("end", "1")
    client.send("end", "2")
    assert select.select([server], [], [], PATIENCE)[0]
    assert server.dispatch() == 1


# -- by channel


def test_receive_gives_its_channel_and_keeps_the_others(segment: Segment) -> None:
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
    assert (endpoint.stats()["ACTIVE_QS"], endpoint.stats()["QSC"]) == ([], 5)


def test_receive_waits_for_a_message_of_any_channel(segment: Segment) -> None:
    endpoint, other = segment.endpoint("a"), segment.endpoint("b")
    assert endpoint.receive("x") is None
    assert endpoint.receive("x", -1) is None
    assert endpoint.receive("x", 0.01) is None
    with soon(lambda: other.send("y", "for later")):
        assert endpoint.receive("x", float("inf")) is None  # so that the caller can look after it
    assert received(endpoint, "y") == b"for later"
    other.send("y", "for later")
    assert select.select([endpoint], [], [], PATIENCE)[0]
    assert endpoint.receive("x", float("inf")) is None


def test_recv_gives_what_was_put_aside_also_after_closing(segment: Segment) -> None:
    endpoint = segment.endpoint("a")
    for number, chan in enumerate("xyxzyxx"):
        endpoint.send(chan, str(number))
    wait(lambda: endpoint.receive("nothing") or endpoint.stats()["TQMC"]["*"] == 7)
    assert received(endpoint, "y", float("inf")) == b"1"  # there is one, so that it does not wait
    endpoint.send("x", "7")
    assert [heard(endpoint).payload for _ in range(6)] == [b"0", b"2", b"3", b"4", b"5", b"6"]
    assert heard(endpoint).payload == b"7"
    endpoint.send("x", "8")
    wait(lambda: endpoint.receive("nothing") or endpoint.stats()["QMC"]["x"] == 1)
    endpoint.close()
    assert heard(endpoint).payload == b"8"
    assert refused(endpoint.recv, 0).reason == "not_open"


def test_stats_of_one_that_has_heard_nothing(segment: Segment) -> None:
    empty = {"QSC": 0, "SEEN_QS": [], "ACTIVE_QS": [], "QMC": {}, "TQMC": {"*": 0}, "VERDICTS": {}, "DROPPED": 0}
    assert segment.closed("a").stats() == empty
    more = {"DDC": 0, "DDO": None, "SS": {"*": 0.0}}
    assert segment.endpoint("a", dedup=True, speed_window=5).stats() == {**empty, **more}
