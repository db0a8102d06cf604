"""Certificates and keys of links, from files in PEM.

Law: a key is taken only from a file that nobody else can read, a certificate only from one that nobody else can write;
what is refused comes with its remedy, before anything is listened at.
"""

from __future__ import annotations

import os
import stat
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from bccnd.client.keys import passed_key
from bccnd.config import TlsSettings
from bccnd.core.pem import read_certificates
from bccnd.errors import StartError

#: bytes of a file with certificates
_MAX_PEM: Final = 1 << 20


def read_tls(tls: TlsSettings, folder: str) -> tuple[str, str, str]:
    """What the files hold: who vouches for others, our certificate, our key. Raises StartError."""
    ca = _read_pem(os.path.join(folder, tls.ca), "CERTIFICATE", "tls.ca")
    certificate = _read_pem(os.path.join(folder, tls.certificate), "CERTIFICATE", "tls.certificate")
    key = _read_pem(os.path.join(folder, tls.key), "PRIVATE KEY", "tls.key")
    try:
        read_certificates(ca.encode())
        ours = read_certificates(certificate.encode())[0].public_key()
        belongs = load_pem_private_key(key.encode(), None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise StartError(
            "bad_certificate",
            f"the files of gateways.nng.tls cannot be used: {error}",
            "make them as docs/links.md says",
        ) from error
    if _bytes(ours) != _bytes(belongs):
        raise StartError(
            "bad_certificate",
            f"{tls.key} is not the key of {tls.certificate}",
            "name the two that were made together under gateways.nng.tls",
        )
    return ca, certificate, key


def _bytes(key: Any) -> bytes:
    return bytes(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _read_pem(path: str, kind: str, setting: str) -> str:
    """A file in PEM; one with a key is refused where others than its owner can read it, one with certificates where
    they can write it."""
    secret = kind == "PRIVATE KEY"
    try:
        with os.fdopen(os.open(passed_key(path) or path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise StartError("bad_certificate", f"{setting}: {path} is no regular file", "name a file")
            text = file.read(_MAX_PEM).decode("ascii", "replace")
    except OSError as error:
        raise StartError(
            "bad_certificate",
            f"{setting}: cannot read {path}: {error.strerror}",
            "make it as docs/links.md says, readable for the gateway",
        ) from error
    mode = stat.S_IMODE(info.st_mode)
    passed = info.st_uid == 0 and mode & ~0o440 == 0 and bool(os.environ.get("CREDENTIALS_DIRECTORY"))
    if secret and mode & 0o077 and not passed:
        raise StartError(
            "bad_certificate", f"{setting}: {path} has mode {mode:04o}: others can read it", f"chmod 600 {path}"
        )
    if not secret and mode & 0o022:
        raise StartError(
            "bad_certificate", f"{setting}: {path} has mode {mode:04o}: others can replace it", f"chmod 644 {path}"
        )
    if "-----BEGIN " not in text or f"{kind}-----" not in text:
        what = "private key" if secret else "certificate"
        raise StartError(
            "bad_certificate", f"{setting}: {path} holds no {what} in PEM", "make it as docs/links.md says"
        )
    return text
