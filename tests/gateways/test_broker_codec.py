"""The broker's bytes: publications, ids, requests and messages, against vectors written by hand."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.gateways.broker_codec import (
    DISCONNECT,
    FLOAT,
    HELLO,
    INT,
    MAX_CONTENT,
    MAX_PUBLICATION,
    MAX_TOPIC,
    MESSAGE,
    REQUEST,
    SHORT_REAL,
    STRING,
    SUBSCRIBE,
    TYPE_NAMES,
    UNSUBSCRIBE,
    hello,
    message,
    publication,
    read_hello,
    read_message,
    read_publication,
    read_request,
    read_value,
    request,
)
from tests.support import ROOT

VECTORS: dict[str, list[dict[str, Any]]] = json.loads((ROOT / "tests/vectors/broker.json").read_text())

topics = st.binary(min_size=1, max_size=MAX_TOPIC).filter(lambda topic: b"\0" not in topic)
words = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda one: f"{one['type']}-{one['content'][:16]}")
def test_a_value_is_shown_as_its_vector_says(vector: dict[str, Any]) -> None:
    kind = vector["type"] if isinstance(vector["type"], int) else TYPE_NAMES.index(vector["type"])
    shown = vector["shown"]
    expected = None if shown is None else shown.encode("latin-1")
    assert read_value(kind, bytes.fromhex(vector["content"])) == expected


@pytest.mark.parametrize("vector", VECTORS["publications"], ids=lambda one: str(one["name"]))
def test_a_publication_is_read_as_its_vector_says(vector: dict[str, Any]) -> None:
    found = read_publication(bytes.fromhex(vector["datagram"]))
    if vector["topic"] is None:
        assert found is None
    else:
        assert found is not None
        assert (found.topic, found.kind) == (vector["topic"].encode("latin-1"), vector["type"])
        assert found.value == vector["shown"].encode("latin-1")


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda one: str(one["name"]))
def test_a_message_is_written_as_its_vector_says(vector: dict[str, Any]) -> None:
    content = bytes.fromhex(vector["content"])
    made = message(vector["peer"], vector["topic"].encode("latin-1"), vector["type"], content)
    pieces = [bytes.fromhex(text).ljust(int(size), b"\0") for size, text in vector["fields"]]
    assert made == b"".join(pieces)
    assert len(made) == MESSAGE == 1603


def test_the_sizes_are_those_of_the_protocol() -> None:
    assert (HELLO, REQUEST, MAX_PUBLICATION) == (11, 52, 1551)
    assert hello(b"C1") == b"C1" + bytes(9)
    assert request(SUBSCRIBE, b"a/b") == b"\0a/b" + bytes(48)
    assert request(UNSUBSCRIBE, b"x" * 50) == b"\1" + b"x" * 50 + b"\0"
    assert request(DISCONNECT) == b"\2" + bytes(51)


@given(st.integers(0, 1), words)
def test_an_int_is_the_number_it_says(sign: int, value: int) -> None:
    shown = read_value(INT, bytes([sign]) + value.to_bytes(4, "big"))
    assert shown is not None
    assert int(shown) == (-value if sign else value)
    assert shown == str(int(shown)).encode()  # and so without a minus before a zero


@given(st.integers(0, 2**16 - 1))
def test_a_short_real_has_two_decimals(value: int) -> None:
    shown = read_value(SHORT_REAL, value.to_bytes(2, "big"))
    assert shown == f"{Decimal(value) / 100:.2f}".encode()


@given(st.integers(0, 1), words, st.integers(0, 255))
def test_a_float_is_exact_however_many_decimals_it_has(sign: int, value: int, power: int) -> None:
    shown = read_value(FLOAT, bytes([sign]) + value.to_bytes(4, "big") + bytes([power]))
    assert shown is not None
    text = shown.decode()
    assert Decimal(text) == Decimal((sign if value else 0, tuple(map(int, str(value))), -power))
    assert len(text.partition(".")[2]) == power
    assert text.startswith("-") == bool(sign and value)
    assert not text.lstrip("-").startswith("0") or text.lstrip("-").partition(".")[0] == "0"


@given(st.binary(max_size=MAX_CONTENT))
def test_a_string_ends_at_its_nul_or_at_its_end(content: bytes) -> None:
    assert read_value(STRING, content) == content.split(b"\0")[0]


@given(topics, st.integers(0, 3), st.binary(min_size=6, max_size=MAX_CONTENT - 1), st.integers(0, 1))
def test_a_publication_comes_out_as_it_went_in(topic: bytes, kind: int, content: bytes, sign: int) -> None:
    content = bytes([sign]) + content
    found = read_publication(publication(topic, kind, content))
    assert found is not None
    assert found[:3] == (topic, kind, content)
    assert found.value == read_value(kind, content)
    delivered = read_message(message("127.0.0.1:7", found.topic, found.kind, found.content))
    assert delivered == (b"127.0.0.1:7", topic, kind, found.value)


@given(st.binary(max_size=2 * MAX_PUBLICATION))
def test_rubbish_is_read_or_refused_and_nothing_else(datagram: bytes) -> None:
    found = read_publication(datagram)
    if found is not None:
        assert MAX_TOPIC < len(datagram) <= MAX_PUBLICATION
        assert datagram[MAX_TOPIC] == found.kind <= STRING
        assert datagram.startswith(found.topic)
        assert datagram.endswith(found.content)


@pytest.mark.parametrize("kind", [INT, SHORT_REAL, FLOAT, STRING])
def test_a_publication_that_was_cut_short_is_none(kind: int) -> None:
    whole = publication(b"a/b", kind, b"\0" * 6)
    least = {INT: 5, SHORT_REAL: 2, FLOAT: 6, STRING: 0}[kind]
    readable = [size for size in range(len(whole) + 1) if read_publication(whole[:size]) is not None]
    assert readable == list(range(51 + least, len(whole) + 1))


@given(topics, st.integers(0, 2))
def test_a_request_comes_out_as_it_went_in(topic: bytes, kind: int) -> None:
    assert read_request(request(kind, topic)) == (kind, topic)


@given(st.integers(3, 255))
def test_there_are_no_other_requests(kind: int) -> None:
    assert read_request(bytes([kind]) + bytes(51)) is None


def test_what_stands_behind_the_nul_is_nothing_and_what_is_too_long_is_cut() -> None:
    assert read_hello(b"C1\0leftover") == b"C1"
    assert read_hello(b"elevenbytes") == b"elevenbytes"
    assert read_hello(bytes(11)) == b""
    assert read_request(b"\0a/b\0" + b"x" * 47) == (SUBSCRIBE, b"a/b")
    # A topic that fills its field is a byte too long, and a reader of the request can see it.
    assert read_request(b"\0" + b"x" * 51) == (SUBSCRIBE, b"x" * 51)
    made = message("[" + "f" * 80 + "]:1", b"t", STRING, b"x" * 1501)
    assert len(made) == MESSAGE
    assert made[49] == 0
    assert made[102 + 1499] == ord("x")
    assert made[102 + 1500 :] == b"\0"
