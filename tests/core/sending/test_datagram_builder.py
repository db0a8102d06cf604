"""Sending: seqs, the ceiling, refusals, and how long an identity is local."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.sending.datagram_builder import RESERVED, DatagramBuilder
from bccnd.core.tracking.dedup import RELEASE_DELAY, TrackerTable
from bccnd.core.trust.integrity import IntegrityChecker, make_checker
from bccnd.core.trust.integrity_algorithms import Crc32, Hmac
from bccnd.core.trust.signatures import generate, public_of
from bccnd.core.wire import bccn1, frames
from bccnd.core.wire.identity_format import PERL_TOKEN_BYTES
from bccnd.core.wire.verdicts import ACCEPTED, LOOPED
from tests.core import material
from tests.core.material import KEY, examples, reason_of
from tests.core.scenario import receive
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


def refusal(out: DatagramBuilder, chan: bytes, payload: bytes = b"x") -> str:
    """Return the reason of a refusal, before the first seq and after it; a refusal must use no seq."""
    checker = out.checker
    first = reason_of(out.build, ME, frames.message(chan, payload), CLOCK - 1)
    if first:
        out.checker = UNSIGNED
        assert seq_of(out) == CLOCK
        out.checker = checker
        assert reason_of(out.build, ME, frames.message(chan, payload), CLOCK) == first
        out.checker = UNSIGNED
        assert seq_of(out) == CLOCK + 1
    return first


@given(
    st.sampled_from([UNSIGNED, SIGNED, IntegrityChecker((Crc32(),)), SIG]),
    material.LEGAL_CHANS,
    st.binary(max_size=100),
)
@examples(200)
def test_what_is_sent_reads_back_and_passes_the_same_check(
    checker: IntegrityChecker, chan: bytes, payload: bytes
) -> None:
    datagram = builder(checker).build(ME, frames.message(chan, payload), CLOCK)
    body = checker.verified_body(datagram)
    assert bccn1.read_body(body) == (ME, CLOCK, chan, payload)
    assert bccn1.read(datagram).check == checker.sign(body)


def test_seqs_start_at_the_clock_and_rise_by_one() -> None:
    out = builder()
    clocks = (CLOCK, CLOCK + 5_000_000, CLOCK - 5_000_000, 0)
    assert [seq_of(out, clock=clock) - CLOCK for clock in clocks] == [0, 1, 2, 3]


def test_every_identity_has_a_counter_until_its_last_client_leaves() -> None:
    out = builder()
    out.open(OTHER)
    out.open(ME)
    assert seq_of(out) == CLOCK
    assert seq_of(out, OTHER, CLOCK + 100) == CLOCK + 100
    out.close(ME, 0.0)
    assert seq_of(out, clock=CLOCK + 1_000) == CLOCK + 1
    assert seq_of(out, OTHER) == CLOCK + 101
    out.close(ME, 0.0)
    out.open(ME)
    assert seq_of(out, clock=CLOCK + 1_000) == CLOCK + 1_000
    for identity in (ME, OTHER):
        out.close(identity, 0.0)
    assert out._open == {}


def room(checker: IntegrityChecker, ceiling: int) -> int:
    """Return the longest payload that fits, found by building datagrams."""
    best = -1
    for size in range(ceiling):
        body = bccn1.build_body(ME, CLOCK, b"c", b"x" * size)
        if len(bccn1.build(body, checker.sign(body))) <= ceiling:
            best = size
    return best


@pytest.mark.parametrize("checker", [UNSIGNED, SIGNED, SIG], ids=["unsigned", "hmac", "sig"])
@pytest.mark.parametrize("ceiling", [1400, 300])
def test_the_ceiling_is_exact(checker: IntegrityChecker, ceiling: int) -> None:
    out = builder(checker, ceiling=ceiling) if ceiling != 1400 else builder(checker)
    fits = room(checker, ceiling)
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
    assert refusal(builder(**settings), chan, payload) == reason


@given(st.binary(max_size=8).filter(lambda chan: 0 not in chan), st.integers(0, 1500))
@examples(200)
def test_build_gives_a_datagram_or_a_reason_for_any_message(chan: bytes, size: int) -> None:
    reason = reason_of(builder(SIGNED).build, ME, frames.message(chan, b"x" * size), CLOCK)
    assert reason in {"", "bad_channel", "bad_target", "too_long"}
    assert reason_of(bccn1.check_chan, chan) == reason.replace("too_long", "")


def test_a_key_that_is_changed_signs_from_then_on() -> None:
    out = builder(SIGNED)
    out.checker = IntegrityChecker((Hmac(b"another key of 16"),))
    datagram = out.build(ME, frames.message(b"c", b"x"), CLOCK)
    assert reason_of(SIGNED.verified_body, datagram) == "integrity_failed"
    assert reason_of(out.checker.verified_body, datagram) == ""


@given(material.LEGAL_CHANS)
@examples(300)
def test_perl_safe_refuses_plain_channels_with_other_characters_and_nothing_else(chan: bytes) -> None:
    discarded = not chan.startswith(b"!") and not set(chan) <= set(PERL_TOKEN_BYTES + b"/?")
    assert reason_of(builder(perl_safe=True).build, ME, frames.message(chan, b"x"), CLOCK) == (
        "not_perl_safe" if discarded else ""
    )


class Local(NamedTuple):
    """A builder with its trackers, and one identity."""

    sources: TrackerTable
    out: DatagramBuilder

    @property
    def given(self) -> tuple[int, int]:
        own = self.sources.local.get(ME)
        assert own is not None
        return own.first, own.next

    def conflicts(self, *seqs: int) -> list[bool]:
        return [self.sources.local.check_conflict(ME, seq) for seq in seqs]

    def judge(self, src: bytes = ME) -> int:
        return receive(self.sources, src, 1, 0.0)


@pytest.fixture
def local() -> Local:
    sources = TrackerTable(dedup_rules())
    out = DatagramBuilder(UNSIGNED, sources)
    out.open(ME)
    return Local(sources, out)


def test_identity_stays_local_for_a_time_after_its_last_client(local: Local) -> None:
    assert local.judge(OTHER) == ACCEPTED
    local.out.open(ME)
    local.out.close(ME, 100.0)
    local.sources.sweep(100.0 + 2 * RELEASE_DELAY)
    assert local.judge() == LOOPED
    local.out.close(ME, 200.0)
    local.sources.sweep(200.0 + RELEASE_DELAY - 0.25)
    assert local.judge() == LOOPED
    local.sources.sweep(200.0 + RELEASE_DELAY)
    assert local.judge() == ACCEPTED


def test_used_seqs_are_local_and_a_refused_message_uses_none(local: Local) -> None:
    assert reason_of(local.out.build, ME, frames.message(b"a b", b""), CLOCK) == "bad_channel"
    assert reason_of(local.out.build, ME, frames.message(b"c", b"x" * 1400), CLOCK) == "too_long"
    assert local.given == (0, 0)
    assert local.conflicts(CLOCK) == [True]
    for number in range(3):
        assert seq_of(local.out) == CLOCK + number
        assert local.given == (CLOCK, CLOCK + number + 1)
    assert local.conflicts(CLOCK, CLOCK + 1, CLOCK + 2, CLOCK - 1) == [False] * 4
    assert local.sources.counted["conflicts"] == 2


@pytest.mark.parametrize("clock", [CLOCK + 5_000_000, CLOCK - 1, CLOCK - 5_000_000])
def test_seqs_used_before_an_identity_returned_are_local(local: Local, clock: int) -> None:
    # The last broadcasts may come in when the next connection has sent its first; the clock may have been set back.
    before = [seq_of(local.out) for _ in range(5)]
    local.out.close(ME, 0.0)
    assert not any(local.conflicts(*before))
    local.out.open(ME)
    assert not any(local.conflicts(*before))
    after = [seq_of(local.out, clock=clock), seq_of(local.out)]
    first = max(clock, CLOCK + 5)
    assert after == [first, first + 1]
    assert not any(local.conflicts(*before, *after))
    assert (local.given, local.sources.counted["conflicts"]) == ((CLOCK, first + 2), 0)


def test_runs_of_released_identities_are_kept_only_for_reports(local: Local) -> None:
    def use(number: int) -> bytes:
        name = b"host/prog/%d" % number
        local.out.open(name)
        local.out.build(name, frames.message(b"c", b"x"), CLOCK)
        local.out.close(name, 0.0)
        return name

    use(1)
    assert local.out.take_ended() == []
    local.out.keep_ended(True)
    told = use(2)
    local.out.open(OTHER)
    local.out.close(OTHER, 0.0)  # it has sent nothing
    assert local.out.take_ended() == [(told, CLOCK, CLOCK + 1)]
    assert local.out.take_ended() == []
    use(3)
    local.out.keep_ended(False)
    assert local.out.take_ended() == []


def test_runs_are_those_of_identities_that_have_sent(local: Local) -> None:
    out = local.out
    assert out.runs() == []
    assert [seq_of(out, clock=CLOCK + late) for late in (0, 9)] == [CLOCK, CLOCK + 1]
    assert out.runs() == [(ME, CLOCK, CLOCK + 2)]


def test_numbers_begin_above_those_that_may_have_been_used_and_are_reserved_before_they_are_used() -> None:
    reserved: list[int] = []
    out = DatagramBuilder(UNSIGNED, TrackerTable(dedup_rules()), first_seq=CLOCK + 500, reserve=reserved.append)
    out.open(ME)
    out.open(OTHER)
    assert [seq_of(out), seq_of(out)] == [CLOCK + 500, CLOCK + 501]
    assert reserved == [CLOCK + 500 + RESERVED]
    assert seq_of(out, OTHER, CLOCK + 10**9) == CLOCK + 10**9
    assert reserved[1:] == [CLOCK + 10**9 + RESERVED]
