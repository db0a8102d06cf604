"""What the tap tells, taken apart, chosen and shown; and datagrams from standard input."""

from __future__ import annotations

import base64
import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.cli.diagnosis.tap import KIND_OF, KINDS, TapFilter, TapLine, TapRecord, as_fields, read_record
from bccnd.cli.diagnosis.trace import read_hex, without_newline
from bccnd.cli.shared.output import cell_width
from bccnd.core.wire import frames
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES
from bccnd.errors import BadFrame


def tapped(raw: bytes, verdict: str = "accepted", segment: str = "lan#5400") -> TapRecord:
    packet = frames.tapped(verdict, segment, 3, 1_700_000_000_123_456_789, "10.0.0.7:5400", raw)
    _, key, payload = frames.read(packet)
    return read_record(key, payload)


def plain(src: str, chan: str, payload: bytes = b"hi", check: bytes = b"") -> bytes:
    body = f"{src}:5:{chan}|".encode() + payload
    return b"BCCN1[%d%b]%b" % (len(body), check, body)


def test_every_verdict_is_of_one_kind() -> None:
    assert sorted(name for names in KINDS.values() for name in names) == sorted(NAMES)
    assert {name for name, kind in KIND_OF.items() if kind == "delivered"} == set(NAMES[: LAST_ACCEPTED + 1])


def test_a_datagram_is_taken_apart_as_far_as_it_can_be_read() -> None:
    whole = tapped(plain("a/b/1", "x/y", b"p|\0", b":crc32=01234567"))
    assert (whole.verdict, whole.segment, whole.epoch, whole.peer) == ("accepted", "lan#5400", 3, "10.0.0.7:5400")
    assert (whole.magic, whole.algo, whole.body) == (b"BCCN1", b"crc32", (b"a/b/1", 5, b"x/y", b"p|\0"))
    other = tapped(plain("a/b/1", "x").replace(b"BCCN1", b"BCCN2"), "unsupported_version")
    assert (other.magic, other.algo, other.body) == (b"BCCN2", b"", None)
    channel = tapped(plain("a/b/1", "no good"), "bad_channel")
    assert (channel.magic, channel.body) == (b"BCCN1", None)
    junk = tapped(b"junk", "bad_envelope")
    assert (junk.magic, junk.algo, junk.body, junk.raw) == (b"", b"", None, b"junk")
    with pytest.raises(BadFrame):
        read_record(b"demo/x", b"hello")


@pytest.mark.parametrize(
    ("sources", "channels", "wanted"),
    [
        *(((one,), (), True) for one in ("relay02", "relay02/", "relay02/cardsys", "relay02/cardsys/7")),
        *(((one,), (), False) for one in ("relay0", "relay02/card", "relay02/cardsys/7/8")),
        *(((), (one,), True) for one in ("door/", "door/*/open", "door/>", "")),
        *(((), (), True), (("relay01", "relay02"), (), True), ((), ("x", "door/front/open"), True)),
        *(((), ("door",), False), (("relay01",), ("door/",), False)),
    ],
)
def test_what_to_show_is_chosen_by_sender_channel_and_segment(
    sources: tuple[str, ...], channels: tuple[str, ...], wanted: bool
) -> None:
    one = tapped(plain("relay02/cardsys/7", "door/front/open"))
    assert TapFilter(sources, channels)(one) is wanted
    assert TapFilter(sources, channels, "lan#5400")(one) is wanted
    assert not TapFilter(sources, channels, "lan")(one)


def test_what_cannot_be_read_has_neither_sender_nor_channel() -> None:
    junk = tapped(b"junk", "bad_envelope")
    assert TapFilter()(junk)
    assert TapFilter(segment="lan#5400")(junk)
    assert not TapFilter(sources=["a"])(junk)
    assert not TapFilter(channels=[""])(junk)


def test_a_line_has_time_verdict_segment_peer_and_what_was_said() -> None:
    line = TapLine()(tapped(plain("a/b/1", "x/y", b"one two\n")))
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.123 accepted lan#5400 10.0.0.7:5400 a/b/1 5 x/y one two\\n", line)
    line = TapLine(segment=False, pad=10)(tapped(b"no \x1b[31m", "stale"))
    assert line[12:] == " stale      10.0.0.7:5400 no \\x1b[31m"
    assert TapLine()(tapped(b"x" * 300, "bad_envelope")).endswith(" " + "x" * 200 + "...")


@given(st.binary(max_size=400), st.integers(1, 200), st.booleans())
def test_no_line_gives_orders_to_a_terminal_or_is_longer_than_it(raw: bytes, width: int, colour: bool) -> None:
    for one in (tapped(raw, "bad_envelope", "s\x1b"), tapped(plain("a/b/1", "x", raw))):
        line = TapLine(colour=colour, width=lambda: width)(one)
        assert click.unstyle(line).isprintable()
        assert cell_width(click.unstyle(line)) <= max(width, 13 + len(one.verdict) + 1)
        assert TapLine()(one).isprintable()
        assert as_fields(one)["verdict"] == one.verdict


def test_as_json_a_datagram_has_all_its_parts() -> None:
    fields = as_fields(tapped(plain("a/b/1", "!relay01/c", b"\xff", b":hmac=0011"), "not_addressed"))
    place = {"verdict": "not_addressed", "segment": "lan#5400", "epoch": 3, "peer": "10.0.0.7:5400"}
    body = {"src": "a/b/1", "seq": 5, "chan": "!relay01/c", "form": "directed", "payload_base64": "/w=="}
    head = {"received_ns": 1_700_000_000_123_456_789, "magic": "BCCN1", "algo": "hmac"}
    assert fields == {**place, **head, **body}
    fields = as_fields(tapped(b"\xffjunk", "bad_envelope"))
    assert base64.b64decode(str(fields["datagram_base64"])) == b"\xffjunk"
    assert (fields["magic"], "src" in fields, "payload" in fields) == ("", False, False)


def test_hexadecimal_may_be_written_as_tools_print_it() -> None:
    assert read_hex(b"42 43:4343\n4e\t31") == b"BCCCN1"
    for wrong in (b"4", b"zz", b"\xff\xff"):
        with pytest.raises(ValueError):
            read_hex(wrong)


def test_a_newline_is_left_out_only_where_the_length_says_so() -> None:
    assert without_newline(b"BCCN1[9]a:1:x|abc\n") == b"BCCN1[9]a:1:x|abc"
    for same in (b"BCCN1[10]a:1:x|abc\n", b"BCCN1[9]a:1:x|abc\n\n", b"BCCN1[9]a:1:x|abc", b"junk\n", b""):
        assert without_newline(same) == same
