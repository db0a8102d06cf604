"""Identities of clients: always legal, always host, program and pid, and perhaps a tag that the client chooses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.wire import bccn1, directed_targets
from bccnd.core.wire.identity_format import MAX_HOST, MAX_TAG, PERL_TOKEN_BYTES, identity, tagged
from bccnd.errors import BadMessage
from tests.core.material import examples, reason_of

#: the kernel's largest pid, and what it can be at worst in a packet of credentials
PIDS = st.one_of(st.integers(1, 4_194_304), st.integers(0, 2**31 - 1))


NAMES = st.one_of(
    st.binary(max_size=20),
    st.binary(min_size=100, max_size=200),
    st.sampled_from([b"", b"sh", b"*", b"?", b"!", b"..", b"a/b", b"a:b|c", b"12345", b"\xff" * 300, b"x" * 300]),
)


@pytest.mark.parametrize(
    ("host", "program", "usual", "perl_safe"),
    [
        (b"relay01", b"cardsys", b"relay01/cardsys", b"relay01/cardsys"),
        (b"relay-01.lan", b"cardsys-relay", b"relay-01.lan/cardsys-relay", b"relay_01.lan/cardsys_relay"),
        (b"relay01", b"(sd-pam)", b"relay01/(sd-pam)", b"relay01/_sd_pam_"),
        (b"relay01", b"kworker/0:1+x", b"relay01/kworker_0_1+x", b"relay01/kworker_0_1_x"),
        (b"relay01", b"a b\tc\n", b"relay01/a_b_c_", b"relay01/a_b_c_"),
        (b"relay01", b"x|y@b#c$d%e^f&g", b"relay01/x_y@b#c$d%e^f&g", b"relay01/x_y_b_c_d_e_f_g"),
        (b"relay01", "caf\u00e9".encode(), b"relay01/caf__", b"relay01/caf__"),
        (b"Relay_01.LAN", b"X.Y_z", b"Relay_01.LAN/X.Y_z", b"Relay_01.LAN/X.Y_z"),
        (b"*", b"!", b"_/_", b"_/_"),
        (b"?", b"?", b"_/_", b"_/_"),
        (b"", b"", b"unknown/unknown", b"unknown/unknown"),
    ],
)
def test_an_identity_is_host_program_and_pid(host: bytes, program: bytes, usual: bytes, perl_safe: bytes) -> None:
    assert identity(host, program, 12345) == usual + b"/12345"
    assert identity(host, program, 0, perl_safe=True) == perl_safe + b"/0"


@given(NAMES, NAMES, PIDS)
@examples(400)
def test_an_identity_is_a_legal_src_and_an_exact_target(host: bytes, program: bytes, pid: int) -> None:
    usual, perl_safe = identity(host, program, pid), identity(host, program, pid, perl_safe=True)
    for name in (usual, perl_safe):
        bccn1.check_src(name)
        tokens = name.split(b"/")
        assert len(tokens) == 3
        assert all(tokens)
        assert tokens[2] == b"%d" % pid
        assert len(tokens[0]) <= MAX_HOST
        assert reason_of(bccn1.check_chan, b"!" + name) == ""
        assert directed_targets.classify(name) == (True, name)
        assert directed_targets.matches(name, name)
    assert re.fullmatch(rb"[A-Za-z0-9_.]+/[A-Za-z0-9_.]+/[0-9]+", perl_safe)
    # It differs from the usual one only where the Perl module would refuse that.
    for ours, other in zip(perl_safe, usual, strict=True):
        assert ours == other or (ours == ord("_") and other not in PERL_TOKEN_BYTES)


LEGAL = [b"spare", b"7", b"a.b", b"x" * MAX_TAG]
KNOWN = [*LEGAL, b"", b"*", b"?", b"!", b"a/b", b"a:b", b"a|b", b"a b", b"\xc3\xa9", b"\0"]
TAGS = st.one_of(st.sampled_from(KNOWN), st.binary(min_size=1, max_size=MAX_TAG + 2))


def is_tag(tag: bytes, perl_safe: bool) -> bool:
    form = rb"[A-Za-z0-9_.]{1,32}" if perl_safe else rb"[!-~]{1,32}"
    return re.fullmatch(form, tag) is not None and (perl_safe or not set(tag) & set(b":|/*?!"))


@given(NAMES, NAMES, PIDS, TAGS, st.booleans())
@examples(300)
def test_a_tag_is_one_more_token_or_refused(host: bytes, program: bytes, pid: int, tag: bytes, perl_safe: bool) -> None:
    base = identity(host, program, pid, perl_safe=perl_safe)
    if not is_tag(tag, perl_safe) or len(base) + 1 + len(tag) > bccn1.MAX_SRC:
        with pytest.raises(BadMessage) as refused:
            tagged(base, tag, perl_safe=perl_safe)
        assert refused.value.reason == "bad_tag"
        return
    name = tagged(base, tag, perl_safe=perl_safe)
    bccn1.check_src(name)
    assert name == base + b"/" + tag
    # An identity that has a fourth token already, because it is of one of several connections, takes a tag too.
    assert tagged(b"h/unknown/0/17", tag[:8], perl_safe=perl_safe) == b"h/unknown/0/17/" + tag[:8]


def test_the_longest_names_are_cut_and_the_pid_is_not() -> None:
    name = identity(b"h" * 128, b"p" * 128, 4_194_304)
    assert (len(name), len(name.split(b"/")[0]), name[-8:]) == (bccn1.MAX_SRC, MAX_HOST, b"/4194304")
