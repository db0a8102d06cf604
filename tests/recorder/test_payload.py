"""Payloads are kept, hashed or left out by the first rule that fits."""

from __future__ import annotations

import hashlib

from bccnd.core.formats.tap_record import Observation, observe
from bccnd.recorder.payload import Keep, Payloads

RULES: list[tuple[str, Keep]] = [("door/*/opened", "record"), ("door/", "hash"), ("!relay01", "hash"), ("", "omit")]


def row(chan: bytes, payload: bytes = b"secret") -> Observation:
    body = b"a/b:1:%b|%b" % (chan, payload)
    return observe("accepted", "lan", 1, 0, "10.0.0.1:1", b"BCCN1[%d]%b" % (len(body), body))


def test_the_first_rule_that_fits_decides() -> None:
    kept = {"door/1/opened": "record", "door/1/closed": "hash", "doors": "omit"}
    kept |= {"!relay01": "hash", "!relay02": "omit", "!": "omit"}
    assert {chan: Payloads(RULES).keep(chan) for chan in kept} == kept
    # What no rule fits is kept; marked channels fit only marked patterns.
    payloads = Payloads([(">", "omit")])
    assert (payloads.keep("a/b"), payloads.keep("!a/b"), payloads.keep("!")) == ("omit", "record", "record")


def test_a_hash_stands_for_the_payload_and_changes_nothing_else() -> None:
    payloads = Payloads(RULES)
    before = row(b"door/1/closed")
    assert payloads.apply(before) == before._replace(payload=b"sha256:" + hashlib.sha256(b"secret").digest())
    assert payloads.apply(row(b"other")) == row(b"other")._replace(payload=None)
    assert payloads.apply(row(b"door/1/opened")).payload == b"secret"
    unread = observe("bad_envelope", "lan", 1, 0, "10.0.0.1:1", b"junk")
    assert payloads.apply(unread) == unread


def test_a_stranger_cannot_have_channels_remembered_without_end() -> None:
    payloads = Payloads(RULES)
    for number in range(10_000):
        payloads.keep(f"x/{number}")
    assert payloads.keep.cache_info().currsize <= 4096
