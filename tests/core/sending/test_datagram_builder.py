"""Sending: seqs, the ceiling, refusals, and how long an identity is local."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.sending.datagram_builder import RESERVED, DatagramBuilder
from bccnd.core.tracking.dedup import RELEASE_DELAY, TrackerTable
from bccnd.core.trust.integrity import IntegrityChecker, make_checker
from bccnd.core.trust.integrity_algorithms import Crc32, Hmac
from bccnd.core.trust.prepared_hmac import PreparedHmac
from bccnd.core.trust.signatures import generate, public_of
from bccnd.core.wire import bccn1, frames
from bccnd.core.wire.identity_format import PERL_TOKEN_BYTES
from bccnd.core.wire.verdicts import ACCEPTED, LOOPED
from tests.core import material
from tests.core.material import KEY, examples, reason_of
from tests.rules import dedup_rules

ME = b"host/program/1"
OTHER = b"host/program/2"
CLOCK = 1_700_000_000_000_000
UNSIGNED = IntegrityChecker()
SIGNED = IntegrityChecker((Hmac(KEY),), required=True)
PRIVATE = generate()
SIG = make_checker("sig", [PRIVATE], {b"host": [public_of(PRIVATE)]}, required=True)


def builder(
    checker: IntegrityChecker = UNSIGNED, *, ceiling: int = bccn1.MAX_SEND, perl_safe: bool = False
) -> DatagramBuilder:
    out = DatagramBuilder(checker, TrackerTable(dedup_rules()), ceiling=ceiling, perl_safe=perl_safe)
    out.open(ME)
    return out


def seq_of(out: DatagramBuilder, identity: bytes = ME, clock: int = CLOCK) -> int:
    datagram = out.build(identity, frames.message(b"c", b"x"), clock)
    seq = out.seq
    assert bccn1.read(datagram).seq == seq
    return seq


@given(
    st.sampled_from([UNSIGNED, SIGNED, IntegrityChecker((PreparedHmac(KEY),)), IntegrityChecker((Crc32(),)), SIG]),
    material.LEGAL_CHANS,
    st.binary(max_size=100),
)
@examples(200)
def test_a_datagram_reads_back_and_passes_the_same_check(
    checker: IntegrityChecker, chan: bytes, payload: bytes
) -> None:
    datagram = builder(checker).build(ME, frames.message(chan, payload), CLOCK)
    body = checker.verified_body(datagram)
    assert bccn1.read_body(body) == (ME, CLOCK, chan, payload)
    assert bccn1.read(datagram).check == checker.sign(body)


@pytest.mark.parametrize("checker", [UNSIGNED, SIGNED, SIG], ids=["unsigned", "hmac", "sig"])
@pytest.mark.parametrize("ceiling", [1400, 300])
def test_the_ceiling_is_exact(checker: IntegrityChecker, ceiling: int) -> None:
    out = builder(checker, ceiling=ceiling)
    fits = 0
    while not reason_of(out.build, ME, frames.message(b"c", b"x" * (fits + 1)), CLOCK):
        fits += 1
    assert len(out.build(ME, frames.message(b"c", b"x" * fits), CLOCK)) == ceiling
    if ceiling == 1400:  # what is said to fit does so with the longest seq
        body = bccn1.build_body(ME, 2**64 - 1, b"c", b"x" * out.room(ME, b"c"))
        assert ceiling - 2 <= len(bccn1.build(body, checker.sign(body))) <= ceiling
    whole = ceiling - len(bccn1.build_body(ME, CLOCK, b"c", b""))  # the body alone is as long as a datagram may be
    for size in (fits + 1, whole, whole + 1, 1400, 70_000):
        assert reason_of(out.build, ME, frames.message(b"c", b"x" * size), CLOCK) == "too_long"


PERL, KEYLESS = {"perl_safe": True}, {"checker": make_checker("sig", [], {b"": [public_of(generate())]})}


@pytest.mark.parametrize(
    ("settings", "chan", "payload", "reason"),
    [
        *(
            ({}, chan, b"", "bad_channel")
            for chan in (b"", b"a b", b"a:b", b"a|b", b"caf\xc3\xa9", b"a\n", b"c" * 1025)
        ),
        *(({}, chan, b"", "bad_target") for chan in (b"!?", b"!?/a", b"!/bccn/sync")),
        ({}, b"c", b"x" * 1400, "too_long"),
        # Of several reasons the first is given: the channel, a body too long by itself, the key, the datagram's length.
        ({}, b"a b", b"x" * 1400, "bad_channel"),
        *((PERL, b"a b", b"", "bad_channel"), (PERL, b"!?", b"", "bad_target")),
        *((PERL, b"a-b", b"x" * 1400, "not_perl_safe"), (PERL, b"a-b", b"x", "not_perl_safe")),
        *((KEYLESS, b"c", b"x", "no_signing_key"), (KEYLESS, b"a b", b"x", "bad_channel")),
        *((KEYLESS, b"c", b"x" * 1300, "no_signing_key"), (KEYLESS, b"c", b"x" * 1400, "too_long")),
    ],
)
def test_a_refused_message_uses_up_no_seq(settings: dict[str, Any], chan: bytes, payload: bytes, reason: str) -> None:
    out = builder(**settings)
    for _ in range(2):
        assert reason_of(out.build, ME, frames.message(chan, payload), CLOCK - 1) == reason
    out.checker = UNSIGNED
    assert seq_of(out) == CLOCK


@given(material.LEGAL_CHANS)
@examples(300)
def test_perl_safe_refuses_plain_channels_with_other_letters(chan: bytes) -> None:
    discarded = not chan.startswith(b"!") and not set(chan) <= set(PERL_TOKEN_BYTES + b"/?")
    assert reason_of(builder(perl_safe=True).build, ME, frames.message(chan, b"x"), CLOCK) == (
        "not_perl_safe" if discarded else ""
    )


#: ``A+`` and ``A-``: a client of identity A comes and goes; ``A@9=5``: at this time, in microseconds behind CLOCK, it
#: sends a message that has this seq, from CLOCK on; ``A!7``: this seq is that of another sender; ``A.``: it sends
#: messages that are refused; ``runs=A:0:2``: open identities that have sent, with their first seq and the next one
HISTORIES = {
    "seqs start at the clock and rise by one": "A+ A@0=0 A@5000000=1 A@-5000000=2 A@-9=3 runs=A:0:4",
    "an identity has a counter until its last client leaves": (
        "A+ A+ B+ A@0=0 B@100=100 A- A@1000=1 B@0=101 runs=A:0:2,B:100:102 A- A+ A@1000=1000 A- B- runs="
    ),
    "an identity that returns uses no seq twice": "A+ A@0=0 A@0=1 A- A+ A@-1=2 A@0=3 A- A+ A@-5000000=4 A@9=5",
    "nor after a time": "A+ A@0=0 A@0=1 A- A+ A@5000000=5000000 A@0=5000001",
    "an unused seq is that of another sender": "A+ A!0 A@0=0 A!1 A!-1 A@0=1 A!2 A!-1",
    "a refused message uses no seq": "A+ A. runs= A!0 A@7=7 A. A@0=8 A!9",
}


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name: str) -> None:
    sources = TrackerTable(dedup_rules())
    out = DatagramBuilder(UNSIGNED, sources)
    used: set[tuple[bytes, int]] = set()
    for word in HISTORIES[name].split():
        what, _, value = word.partition("=")
        identity, conflicts = what[:1].encode(), sources.counted["conflicts"]
        if what == "runs":
            found = ",".join(f"{src.decode()}:{first - CLOCK}:{beyond - CLOCK}" for src, first, beyond in out.runs())
            assert (word, found) == (word, value)
        elif what[1] == "+":
            out.open(identity)
        elif what[1] == "-":
            out.close(identity, 0.0)
        elif what[1] == ".":
            for frame, reason in ((frames.message(b"a b", b""), "bad_channel"), (b"MSG c\0" + b"x" * 1400, "too_long")):
                assert reason_of(out.build, identity, frame, CLOCK) == reason
        elif what[1] == "!":
            sources.local.check_conflict(identity, CLOCK + int(what[2:]))
            assert (word, sources.counted["conflicts"]) == (word, conflicts + 1)
        else:
            seq = seq_of(out, identity, CLOCK + int(what[2:]))
            assert (word, seq - CLOCK) == (word, int(value))
            assert (identity, seq) not in used
            used.add((identity, seq))
        # The last broadcasts may come in when the next client of an identity has sent its first.
        assert not any(sources.local.check_conflict(*one) for one in used)


def test_an_identity_is_local_for_a_time_after_its_last_client() -> None:
    sources = TrackerTable(dedup_rules())
    out = DatagramBuilder(UNSIGNED, sources)
    out.open(ME)
    out.close(ME, 100.0)
    for now, verdict in ((99.75 + RELEASE_DELAY, LOOPED), (100.0 + RELEASE_DELAY, ACCEPTED)):
        sources.sweep(now)
        assert sources.judge(ME, 1, now) == verdict


def test_runs_of_released_identities_are_kept_only_for_reports() -> None:
    out = builder()

    def use(number: int, *, sends: bool = True) -> bytes:
        name = b"host/prog/%d" % number
        out.open(name)
        if sends:
            out.build(name, frames.message(b"c", b"x"), CLOCK)
        out.close(name, 0.0)
        return name

    use(1)
    assert out.take_ended() == []
    out.keep_ended(True)
    kept = use(2)
    use(3, sends=False)
    assert [out.take_ended(), out.take_ended()] == [[(kept, CLOCK, CLOCK + 1)], []]
    use(4)
    out.keep_ended(False)
    assert out.take_ended() == []


def test_numbers_are_reserved_before_they_are_used() -> None:
    reserved: list[int] = []
    out = DatagramBuilder(UNSIGNED, TrackerTable(dedup_rules()), first_seq=CLOCK + 500, reserve=reserved.append)
    out.open(ME)
    out.open(OTHER)
    assert [seq_of(out), seq_of(out)] == [CLOCK + 500, CLOCK + 501]  # above those that may have been used
    assert reserved == [CLOCK + 500 + RESERVED]
    assert seq_of(out, OTHER, CLOCK + 10**9) == CLOCK + 10**9
    assert reserved[1:] == [CLOCK + 10**9 + RESERVED]
