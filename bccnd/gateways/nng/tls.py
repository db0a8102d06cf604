"""TLS contexts of links, made from files in PEM; what is refused names its remedy, before anything listens."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from typing import Final

from bccnd.config import TlsSettings
from bccnd.errors import StartError
from bccnd.key_files import passed_key

_REMEDY: Final = "make it as described in docs/links.md"


class Contexts:
    """What listeners and diallers show and require. Raises StartError for files that cannot be used."""

    def __init__(self, tls: TlsSettings, folder: str) -> None:
        self._name = tls.server_name
        self._accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        files = (tls.ca, "CERTIFICATE"), (tls.certificate, "CERTIFICATE"), (tls.key, "PRIVATE KEY")
        ca, certificate, key = (_check(os.path.join(folder, path), kind) for path, kind in files)
        for context in (self._accepting, self._dialling):
            context.options |= ssl.OP_NO_RENEGOTIATION
            try:
                context.load_verify_locations(ca)
                context.load_cert_chain(certificate, key, password=lambda: b"")  # else OpenSSL asks for one
            except OSError as error:
                detail = f"the files of gateways.nng.tls cannot be used: {error}"
                raise StartError("bad_certificate", detail, _REMEDY) from error
        if tls.require == "both":
            self._accepting.verify_mode = ssl.CERT_REQUIRED

    def wrap(self, sock: socket.socket, host: str | None, *, accepted: bool) -> ssl.SSLSocket:
        """Begin TLS on a connection that was accepted, or made to ``host``; nothing is sent yet."""
        context = self._accepting if accepted else self._dialling
        name = None if accepted else self._name or host
        return context.wrap_socket(sock, server_side=accepted, server_hostname=name, do_handshake_on_connect=False)


def _check(path: str, kind: str) -> str:
    """Return where to read a file: systemd may have passed it. Others must not be able to replace a certificate, nor to
    read a key. Raises StartError."""
    source = passed_key(path) or path
    try:
        with open(source, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            info = os.fstat(file.fileno())
            text = file.read(1 << 20) if stat.S_ISREG(info.st_mode) else b""
    except OSError as error:
        detail = f"cannot read {path}: {error.strerror}"
        raise StartError("bad_certificate", detail, f"{_REMEDY}, readable for the gateway") from error
    mode = stat.S_IMODE(info.st_mode)
    forbidden, what, better = (0o077, "read", "600") if kind == "PRIVATE KEY" else (0o022, "replace", "644")
    if mode & forbidden and (source == path or info.st_uid or mode & ~0o440):
        detail = f"{path} has mode {mode:04o}: others can {what} it"
        raise StartError("bad_certificate", detail, f"chmod {better} {path}")
    if b"-----BEGIN " not in text or f"{kind}-----".encode() not in text:
        raise StartError("bad_certificate", f"{path} has no {kind.lower()} in PEM", _REMEDY)
    return source
