"""The way out: seqs, the ceiling, refusals, and how long an identity is ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core import bccn1
from bccnd.core.dedup import UNHEARD, DedupRules, Sources
from bccnd.core.egress import LINGER, Egress
from bccnd.core.identity import PERL_TOKEN_BYTES
from bccnd.core.integrity import Crc32, Door, Hmac, make_door
from bccnd.core.signatures import generate, public_of
from bccnd.core.verdicts import ACCEPTED, LOOPED
from bccnd.errors import BadMessage
from tests.core import material
from tests.core.material import KEY, examples, reason_of

ME = b"host/program/1"
OTHER = b"host/program/2"
CLOCK = 1_700_000_000_000_000
UNSIGNED = Door()
SIGNED = Door((Hmac(KEY),), required=True)


def egress(door: Door = UNSIGNED, *, ceiling: int = bccn1.MAX_SEND, perl_safe: bool = False) -> Egress:
    out = Egress(door, Sources(DedupRules()), ceiling=ceiling, perl_safe=perl_safe)
    out.open(ME)
    return out


def seq_of(out: Egress, identity: bytes = ME, clock: int = CLOCK) -> int:
    seq, datagram = out.emit(identity, b"c", b"x", clock)
    assert bccn1.read(datagram).seq == seq
    return seq


@given(st.sampled_from([UNSIGNED, SIGNED, Door((Crc32(),))]), material.legal_chans(), st.binary(max_size=100))
@examples(200)
def test_what_leaves_reads_back_and_passes_its_own_door(door: Door, chan: bytes, payload: bytes) -> None:
    _, datagram = egress(door).emit(ME, chan, payload, CLOCK)
    body = door.admit(datagram)
    assert bccn1.read_body(body) == (ME, CLOCK, chan, payload)
    assert bccn1.read(datagram).check == door.seal(body)


def test_seqs_start_at_the_clock_and_go_on_by_one_whatever_it_says() -> None:
    out = egress()
    assert [seq_of(out, clock=clock) for clock in (CLOCK, CLOCK + 5_000_000, CLOCK - 5_000_000, 0)] == [
        CLOCK,
        CLOCK + 1,
        CLOCK + 2,
        CLOCK + 3,
    ]


def test_every_identity_has_a_counter_of_its_own() -> None:
    out = egress()
    out.open(OTHER)
    assert seq_of(out) == CLOCK
    assert seq_of(out, OTHER, CLOCK + 100) == CLOCK + 100
    assert seq_of(out) == CLOCK + 1
    assert seq_of(out, OTHER) == CLOCK + 101


def test_a_program_that_comes_back_starts_at_the_clock_again() -> None:
    out = egress()
    seq_of(out)
    out.close(ME, 0.0)
    out.open(ME)
    assert seq_of(out, clock=CLOCK + 1_000) == CLOCK + 1_000


def test_two_clients_of_one_identity_share_its_counter_until_the_last_one_leaves() -> None:
    out = egress()
    out.open(ME)
    assert seq_of(out) == CLOCK
    out.close(ME, 0.0)
    assert seq_of(out, clock=CLOCK + 1_000) == CLOCK + 1
    out.close(ME, 0.0)
    out.open(ME)
    assert seq_of(out, clock=CLOCK + 1_000) == CLOCK + 1_000


def test_nothing_is_kept_of_who_has_left() -> None:
    out = egress()
    out.open(OTHER)
    for identity in (ME, OTHER):
        seq_of(out, identity)
        out.close(identity, 0.0)
    assert out._speakers == {}


# -- refusals


def room(door: Door, ceiling: int) -> int:
    """The longest payload that fits under the ceiling, found by making datagrams by hand."""
    best = -1
    for size in range(ceiling):
        body = bccn1.build_body(ME, CLOCK, b"c", b"x" * size)
        if len(bccn1.build(body, door.seal(body))) <= ceiling:
            best = size
    return best


@pytest.mark.parametrize("door", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
@pytest.mark.parametrize("ceiling", [bccn1.MAX_SEND, 100])
def test_the_ceiling_is_exact(door: Door, ceiling: int) -> None:
    out = egress(door, ceiling=ceiling)
    fits = room(door, ceiling)
    _, datagram = out.emit(ME, b"c", b"x" * fits, CLOCK)
    assert len(datagram) == ceiling
    with pytest.raises(BadMessage) as refused:
        out.emit(ME, b"c", b"x" * (fits + 1), CLOCK)
    assert refused.value.reason == "too_long"


def test_the_usual_ceiling_is_that_of_the_protocol() -> None:
    out = egress()
    envelope = len(b"BCCN1[1390]")
    header = len(bccn1.build_body(ME, CLOCK, b"c", b""))
    assert len(out.emit(ME, b"c", b"x" * (1400 - envelope - header), CLOCK)[1]) == 1400
    assert reason_of(out.emit, ME, b"c", b"x" * (1401 - envelope - header), CLOCK) == "too_long"


@pytest.mark.parametrize("door", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
@pytest.mark.parametrize("size", [1400, 1401, 70_000])
def test_far_too_long_is_too_long(door: Door, size: int) -> None:
    assert reason_of(egress(door).emit, ME, b"c", b"x" * size, CLOCK) == "too_long"


@pytest.mark.parametrize(
    ("chan", "payload", "reason"),
    [
        (b"", b"", "bad_channel"),
        (b"a b", b"", "bad_channel"),
        (b"a:b", b"", "bad_channel"),
        (b"a|b", b"", "bad_channel"),
        (b"caf\xc3\xa9", b"", "bad_channel"),
        (b"a\n", b"", "bad_channel"),
        (b"c" * 1025, b"", "bad_channel"),
        (b"!?", b"", "bad_target"),
        (b"!?/a", b"", "bad_target"),
        (b"!/bccn/sync", b"", "bad_target"),
        (b"c", b"x" * 1400, "too_long"),
        # The channel is looked at first.
        (b"a b", b"x" * 1400, "bad_channel"),
    ],
)
def test_a_refused_message_has_a_reason_and_uses_up_no_seq(chan: bytes, payload: bytes, reason: str) -> None:
    out = egress()
    # Before the first seq as well as behind it.
    assert reason_of(out.emit, ME, chan, payload, CLOCK - 1) == reason
    assert seq_of(out) == CLOCK
    with pytest.raises(BadMessage) as refused:
        out.emit(ME, chan, payload, CLOCK)
    assert refused.value.reason == reason
    assert seq_of(out) == CLOCK + 1


@given(st.binary(max_size=8), st.integers(0, 1500))
@examples(200)
def test_emit_gives_a_datagram_or_a_reason_for_any_message(chan: bytes, size: int) -> None:
    reason = reason_of(egress(SIGNED).emit, ME, chan, b"x" * size, CLOCK)
    assert reason in {"", "bad_channel", "bad_target", "too_long"}
    if reason in {"", "too_long"}:
        assert reason_of(bccn1.check_chan, chan) == ""
    else:
        assert reason_of(bccn1.check_chan, chan) == reason


# -- whose broadcasts are ours


def heard(sources: Sources, src: bytes) -> int:
    verdict = sources.judge(src, 1, 0.0)
    return sources.begin(src, 1, 0.0) if verdict == UNHEARD else verdict


def test_what_an_open_identity_sent_is_ours() -> None:
    sources = Sources(DedupRules())
    out = Egress(UNSIGNED, sources)
    out.open(ME)
    assert heard(sources, ME) == LOOPED
    assert heard(sources, OTHER) == ACCEPTED


def test_an_identity_is_ours_until_its_last_client_has_left_for_long_enough() -> None:
    sources = Sources(DedupRules())
    out = Egress(UNSIGNED, sources)
    out.open(ME)
    out.open(ME)
    out.close(ME, 100.0)
    sources.sweep(100.0 + 2 * LINGER)
    assert heard(sources, ME) == LOOPED
    out.close(ME, 200.0)
    sources.sweep(200.0 + LINGER - 0.25)
    assert heard(sources, ME) == LOOPED
    sources.sweep(200.0 + LINGER)
    assert heard(sources, ME) == ACCEPTED


def test_an_identity_that_came_back_in_time_stays_ours() -> None:
    sources = Sources(DedupRules())
    out = Egress(UNSIGNED, sources)
    out.open(ME)
    out.close(ME, 0.0)
    out.open(ME)
    sources.sweep(10 * LINGER)
    assert heard(sources, ME) == LOOPED


def test_a_key_that_is_changed_signs_from_then_on() -> None:
    out = egress(SIGNED)
    out.door = Door((Hmac(b"another key of 16"),))
    _, datagram = out.emit(ME, b"c", b"x", CLOCK)
    assert reason_of(SIGNED.admit, datagram) == "integrity_failed"
    assert reason_of(out.door.admit, datagram) == ""


# -- what the Perl module would discard


@pytest.mark.parametrize(
    "chan",
    [
        *(b"cardsys/relay/tx", b"a.b_c/D9", b"what?", b"?", b"/", b"a//b/"),
        # The signs of the other forms are no part of a name; whom they are for is nobody's but the receiver's.
        *(b"!", b"!relay-01", b"!relay01/cardsys-relay/7", b"!relay01/*"),
    ],
)
def test_a_channel_that_the_perl_module_takes_goes_out(chan: bytes) -> None:
    assert reason_of(egress(perl_safe=True).emit, ME, chan, b"x", CLOCK) == ""


@pytest.mark.parametrize("chan", [b"a-b", b"a+b", b"a*", b"a!", b"a@b", b"#", b"a,b", b"[a]", b"a/b-", b"~"])
def test_a_channel_that_the_perl_module_would_discard_is_refused_and_uses_up_no_seq(chan: bytes) -> None:
    out = egress(perl_safe=True)
    assert reason_of(out.emit, ME, chan, b"x", CLOCK - 1) == "not_perl_safe"
    assert seq_of(out) == CLOCK
    assert reason_of(out.emit, ME, chan, b"x", CLOCK) == "not_perl_safe"
    assert seq_of(out) == CLOCK + 1
    # Where nobody asked for it, it goes out.
    assert reason_of(egress().emit, ME, chan, b"x", CLOCK) == ""


@given(material.legal_chans())
@examples(300)
def test_perl_safe_refuses_plain_channels_with_other_characters_and_nothing_else(chan: bytes) -> None:
    discarded = not chan.startswith(b"!") and not set(chan) <= set(PERL_TOKEN_BYTES + b"/?")
    assert reason_of(egress(perl_safe=True).emit, ME, chan, b"x", CLOCK) == ("not_perl_safe" if discarded else "")


@pytest.mark.parametrize(
    ("chan", "payload", "reason"),
    [(b"a b", b"", "bad_channel"), (b"!?", b"", "bad_target"), (b"a-b", b"x" * 1400, "not_perl_safe")],
)
def test_what_is_no_channel_at_all_is_that_first(chan: bytes, payload: bytes, reason: str) -> None:
    assert reason_of(egress(perl_safe=True).emit, ME, chan, payload, CLOCK) == reason


# -- signatures


def test_where_there_is_no_key_to_sign_with_nothing_leaves_and_no_seq_is_used_up() -> None:
    verifies_only = make_door("sig", [], {b"": [public_of(generate())]})
    out = egress(verifies_only)
    assert reason_of(out.emit, ME, b"c", b"x", CLOCK - 1) == "no_signing_key"
    # Of several reasons the first is told: the channel, the key, the length of the whole; and a body that is too long
    # by itself is not worth asking for a key.
    assert reason_of(out.emit, ME, b"a b", b"x", CLOCK - 1) == "bad_channel"
    assert reason_of(out.emit, ME, b"c", b"x" * 1300, CLOCK - 1) == "no_signing_key"
    assert reason_of(out.emit, ME, b"c", b"x" * 1400, CLOCK - 1) == "too_long"
    out.door = UNSIGNED
    assert seq_of(out) == CLOCK
    out.door = verifies_only
    assert reason_of(out.emit, ME, b"c", b"x", CLOCK) == "no_signing_key"
    out.door = UNSIGNED
    assert seq_of(out) == CLOCK + 1


def test_what_is_signed_is_accepted_by_who_knows_the_signer() -> None:
    private = generate()
    out = egress(make_door("sig", [private]))
    _, datagram = out.emit(ME, b"c", b"x", CLOCK)
    assert reason_of(make_door("sig", [], {b"host": [public_of(private)]}).admit, datagram) == ""
    assert reason_of(make_door("sig", [], {b"host": [public_of(generate())]}).admit, datagram) == "integrity_failed"


def test_a_signature_counts_towards_the_ceiling() -> None:
    door = make_door("sig", [generate()])
    out = egress(door)
    fits = 1400 - len(b"BCCN1[1234:sig=]") - 128 - len(bccn1.build_body(ME, CLOCK, b"c", b""))
    assert len(out.emit(ME, b"c", b"x" * fits, CLOCK)[1]) == 1400
    assert reason_of(out.emit, ME, b"c", b"x" * (fits + 1), CLOCK) == "too_long"


# -- which seqs are ours


def given_seqs(sources: Sources, identity: bytes = ME) -> tuple[int, int]:
    own = sources.claim(identity)
    return own.first, own.next


def test_what_we_have_given_is_what_is_ours() -> None:
    sources = Sources(DedupRules())
    out = Egress(UNSIGNED, sources)
    out.open(ME)
    assert given_seqs(sources) == (0, 0)
    assert sources.conflict(ME, CLOCK)
    for number in range(3):
        assert seq_of(out) == CLOCK + number
        assert given_seqs(sources) == (CLOCK, CLOCK + number + 1)
    assert not any(sources.conflict(ME, CLOCK + number) for number in range(3))
    assert not sources.conflict(ME, CLOCK - 1)
    assert sources.conflicts == 2


def test_a_refused_message_gives_no_seq_to_anybody() -> None:
    sources = Sources(DedupRules())
    out = Egress(UNSIGNED, sources)
    out.open(ME)
    assert reason_of(out.emit, ME, b"a b", b"", CLOCK) == "bad_channel"
    assert reason_of(out.emit, ME, b"c", b"x" * 1400, CLOCK) == "too_long"
    assert given_seqs(sources) == (0, 0)


def test_what_was_given_before_an_identity_came_back_is_still_ours() -> None:
    # Its last broadcasts may come in when the first ones of the next connection are already out.
    sources = Sources(DedupRules())
    out = Egress(UNSIGNED, sources)
    out.open(ME)
    before = [seq_of(out), seq_of(out)]
    out.close(ME, 0.0)
    assert not sources.conflict(ME, before[-1])
    out.open(ME)
    assert not sources.conflict(ME, before[-1])
    after = [seq_of(out, clock=CLOCK + 5_000_000), seq_of(out)]
    assert after == [CLOCK + 5_000_000, CLOCK + 5_000_001]
    assert not any(sources.conflict(ME, seq) for seq in before + after)
    assert sources.conflicts == 0
    assert given_seqs(sources) == (CLOCK, CLOCK + 5_000_002)


def test_what_was_given_is_forgotten_when_the_identity_is_ours_no_more() -> None:
    sources = Sources(DedupRules())
    out = Egress(UNSIGNED, sources)
    out.open(ME)
    seq_of(out)
    out.close(ME, 0.0)
    sources.sweep(LINGER)
    out.open(ME)
    assert given_seqs(sources) == (0, 0)
    assert seq_of(out, clock=CLOCK + 20_000_000) == CLOCK + 20_000_000
    assert given_seqs(sources) == (CLOCK + 20_000_000, CLOCK + 20_000_001)


@pytest.mark.parametrize("back", [1, 5_000_000])
def test_a_clock_that_was_set_back_makes_nobody_else_of_us(back: int) -> None:
    # A program that connects again has the same identity, and the clock may have been corrected in between.
    sources = Sources(DedupRules())
    out = Egress(UNSIGNED, sources)
    out.open(ME)
    before = [seq_of(out) for _ in range(5)]
    out.close(ME, 0.0)
    out.open(ME)
    after = [seq_of(out, clock=CLOCK - back) for _ in range(2)]
    assert not any(sources.conflict(ME, seq) for seq in before + after)
