"""The HMAC of the daemon and the plain one of clients verify each other's datagrams."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.trust.integrity_algorithms import Hmac
from bccnd.core.trust.prepared_hmac import PreparedHmac
from bccnd.core.wire import bccn1
from tests.core.material import examples, reason_of


@given(key=st.binary(min_size=1, max_size=80), body=st.binary(max_size=200))
@examples(100)
def test_each_verifies_what_the_other_signs_and_nothing_else(key: bytes, body: bytes) -> None:
    plain, prepared = IntegrityChecker([Hmac(key)]), IntegrityChecker([PreparedHmac(key)])
    for signer, verifier in ((plain, prepared), (prepared, plain)):
        raw = bccn1.build(body, signer.sign(body))
        assert verifier.verified_body(raw) == body
        assert reason_of(verifier.verified_body, raw.replace(b"]", b"0]", 1)) == "integrity_failed"
        assert reason_of(verifier.verified_body, bccn1.build(body, signer.sign(body + b"x"))) == "integrity_failed"
    assert [key.verified for key in (*plain.list_keys(), *prepared.list_keys())] == [1, 1]
