"""Reads certificates in PEM; works with cryptography 38, the version of Debian 12."""

from __future__ import annotations

import re
from calendar import timegm
from typing import Final

from cryptography import x509

_BLOCK: Final = re.compile(rb"-----BEGIN (X509 )?CERTIFICATE-----.+?-----END (X509 )?CERTIFICATE-----", re.DOTALL)


def read_certificates(data: bytes) -> list[x509.Certificate]:
    """Return all certificates of a file, at least one. Raises ValueError."""
    # load_pem_x509_certificates came with cryptography 39
    found = [x509.load_pem_x509_certificate(block[0]) for block in _BLOCK.finditer(data)]
    if not found:
        raise ValueError("no certificate in PEM found")
    return found


def validity(certificate: x509.Certificate) -> tuple[float, float]:
    """Return the validity of a certificate as start and end, in seconds since 1970."""
    if hasattr(certificate, "not_valid_after_utc"):
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    else:  # before cryptography 42 they had no zone, and were in UTC
        begin, end = certificate.not_valid_before, certificate.not_valid_after
    return timegm(begin.timetuple()), timegm(end.timetuple())
