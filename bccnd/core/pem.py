"""Certificates in PEM, read with what Debian 12 has: cryptography 38."""

from __future__ import annotations

import re
from calendar import timegm
from typing import Final

from cryptography import x509

_BLOCK: Final = re.compile(rb"-----BEGIN (X509 )?CERTIFICATE-----.+?-----END (X509 )?CERTIFICATE-----", re.DOTALL)


def read_certificates(data: bytes) -> list[x509.Certificate]:
    """All certificates of a file, at least one. Raises ValueError."""
    # One by one: what reads them all came with cryptography 39.
    found = [x509.load_pem_x509_certificate(block[0]) for block in _BLOCK.finditer(data)]
    if not found:
        raise ValueError("there is no certificate in PEM")
    return found


def validity(certificate: x509.Certificate) -> tuple[float, float]:
    """From when until when a certificate is good, in seconds since 1970."""
    if hasattr(certificate, "not_valid_after_utc"):
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    else:  # before cryptography 42 they had no zone, and were in UTC
        begin, end = certificate.not_valid_before, certificate.not_valid_after
    return timegm(begin.timetuple()), timegm(end.timetuple())
