"""Bytes of publications, requests and messages, against vectors written by hand."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.gateways.broker import codec
from bccnd.gateways.broker.codec import FLOAT, INT, MAX_CONTENT, MAX_PUBLICATION, MAX_TOPIC, MESSAGE, SHORT_REAL, STRING
from tests.e2e.brokers import asking, publication
from tests.support import ROOT

VECTORS: dict[str, list[dict[str, Any]]] = json.loads((ROOT / "tests/vectors/broker.json").read_text())
TYPES = ("INT", "SHORT_REAL", "FLOAT", "STRING")

topics = st.binary(min_size=1, max_size=MAX_TOPIC).filter(lambda topic: b"\0" not in topic)
words = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda one: f"{one['type']}-{one['content'][:16]}")
def test_a_value_is_read_as_its_vector_says(vector: dict[str, Any]) -> None:
    kind = vector["type"] if isinstance(vector["type"], int) else TYPES.index(vector["type"])
    shown = vector["shown"]
    expected = None if shown is None else shown.encode("latin-1")
    assert codec.read_value(kind, bytes.fromhex(vector["content"])) == expected


@pytest.mark.parametrize("vector", VECTORS["publications"], ids=lambda one: str(one["name"]))
def test_a_publication_is_read_as_its_vector_says(vector: dict[str, Any]) -> None:
    found = codec.read_publication(bytes.fromhex(vector["datagram"]))
    if vector["topic"] is None:
        assert found is None
    else:
        assert found is not None
        assert (found.topic, found.kind) == (vector["topic"].encode("latin-1"), vector["type"])
        assert found.value == vector["shown"].encode("latin-1")


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda one: str(one["name"]))
def test_a_message_is_written_as_its_vector_says(vector: dict[str, Any]) -> None:
    content = bytes.fromhex(vector["content"])
    made = codec.message(vector["peer"], vector["topic"].encode("latin-1"), vector["type"], content)
    pieces = [bytes.fromhex(text).ljust(int(size), b"\0") for size, text in vector["fields"]]
    assert made == b"".join(pieces)
    assert len(made) == MESSAGE == 1603


@given(st.integers(0, 1), words, st.integers(0, 255))
def test_numbers_are_exact_however_many_decimals_they_have(sign: int, value: int, power: int) -> None:
    shown = codec.read_value(FLOAT, bytes([sign]) + value.to_bytes(4, "big") + bytes([power]))
    assert shown is not None
    text = shown.decode()
    assert Decimal(text) == Decimal((sign if value else 0, tuple(map(int, str(value))), -power))
    assert len(text.partition(".")[2]) == power
    assert text.startswith("-") == bool(sign and value)
    assert not text.lstrip("-").startswith("0") or text.lstrip("-").partition(".")[0] == "0"
    whole = codec.read_value(INT, bytes([sign]) + value.to_bytes(4, "big"))
    assert whole == str(-value if sign else value).encode()
    short = codec.read_value(SHORT_REAL, (value % 2**16).to_bytes(2, "big"))
    assert short == f"{Decimal(value % 2**16) / 100:.2f}".encode()


@given(topics, st.integers(0, 3), st.binary(min_size=6, max_size=MAX_CONTENT - 1), st.integers(0, 1))
def test_a_publication_is_read_as_it_was_sent(topic: bytes, kind: int, content: bytes, sign: int) -> None:
    content = bytes([sign]) + content
    value = codec.read_value(kind, content)
    assert codec.read_publication(publication(topic, kind, content)) == (topic, kind, content, value)


@given(st.binary(max_size=2 * MAX_PUBLICATION))
def test_any_bytes_are_read_or_refused(datagram: bytes) -> None:
    found = codec.read_publication(datagram)
    if found is not None:
        assert MAX_TOPIC < len(datagram) <= MAX_PUBLICATION
        assert datagram[MAX_TOPIC] == found.kind <= STRING
        assert datagram.startswith(found.topic)
        assert datagram.endswith(found.content)


@pytest.mark.parametrize("kind", [INT, SHORT_REAL, FLOAT, STRING])
def test_a_publication_that_was_cut_short_is_refused(kind: int) -> None:
    whole = publication(b"a/b", kind, b"\0" * 6)
    least = {INT: 5, SHORT_REAL: 2, FLOAT: 6, STRING: 0}[kind]
    readable = [size for size in range(len(whole) + 1) if codec.read_publication(whole[:size]) is not None]
    assert readable == list(range(51 + least, len(whole) + 1))


def test_requests_are_read_and_long_fields_cut() -> None:
    for kind in range(256):
        assert codec.read_request(asking(kind, b"a/b")) == ((kind, b"a/b") if kind < 3 else None)
    assert codec.read_request(b"\0a/b\0" + b"x" * 47) == (codec.SUBSCRIBE, b"a/b")
    # A topic that fills its field is a byte too long, and a reader of the request can see it.
    assert codec.read_request(b"\0" + b"x" * 51) == (codec.SUBSCRIBE, b"x" * 51)
    made = codec.message("[" + "f" * 80 + "]:1", b"t", STRING, b"x" * 1501)
    assert (len(made), made[49], made[102 + 1499 :]) == (MESSAGE, 0, b"x\0")
