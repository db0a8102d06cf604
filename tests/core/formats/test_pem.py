"""Certificates in PEM, by what old and new versions of cryptography know."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509

from bccnd.core.formats.pem import read_certificates, validity
from tests.gateways import certificates


@pytest.mark.parametrize("newer", [True, False])
def test_every_certificate_of_a_file_is_read(tmp_path: Path, newer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not newer:
        monkeypatch.delattr(x509, "load_pem_x509_certificates", raising=False)
    certificates.make(tmp_path)
    one, other = (tmp_path / "relay01.pem").read_bytes(), (tmp_path / "ca.pem").read_bytes()
    found = read_certificates(b"# both\n" + one + b"between\n" + other)
    assert found == [*read_certificates(one), *read_certificates(other)]
    for data in (b"", b"x", one.replace(b"CERTIFICATE", b"PRIVATE KEY"), one[:200], one.replace(b"M", b"!")):
        with pytest.raises(ValueError, match=r"."):
            read_certificates(data)


def test_the_dates_are_those_of_utc() -> None:
    begin, end = datetime(2026, 1, 2, 3), datetime(2027, 1, 2, 3)
    old: Any = SimpleNamespace(not_valid_before=begin, not_valid_after=end)
    new: Any = SimpleNamespace(
        not_valid_before_utc=begin.replace(tzinfo=UTC), not_valid_after_utc=end.replace(tzinfo=UTC)
    )
    assert validity(old) == validity(new) == (1_767_322_800.0, 1_798_858_800.0)
