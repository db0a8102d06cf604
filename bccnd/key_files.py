"""Keys from files.

Invariant: a secret is read only from a file that other users cannot read, a public key only from one that they cannot
write. Source: BCCN, "HMAC" (keys are distributed in files under /etc).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Final, Literal

from bccnd.core.trust.integrity import MIN_KEY
from bccnd.errors import BadKey

#: a file larger than this is some other file
_MAX_FILE: Final = 4096
_HOW_TO: Final = "make one with 'bccn keygen' (--help says how)"


def read_key(path: str, algorithm: str = "hmac") -> bytes:
    """Read a secret from a file, without its line end: a key for ``hmac``, or a private key as PEM for ``sig``.

    Raises BadKey, also if anyone but the owner can read the file. A systemd credential (owned by root, mode 0440 or
    0400) is accepted.
    """
    key, info = _read(path)
    mode = stat.S_IMODE(info.st_mode)
    credential = info.st_uid == 0 and mode & ~0o440 == 0
    if mode & 0o077 and not credential:
        raise BadKey(f"key {path} has mode {mode:04o}: others can read it", f"chmod 600 {path}")
    _check(key, path, info)
    if algorithm == "sig":
        _check_pem(key, "private_key", path)
    elif key.startswith(b"-----BEGIN "):
        # A public key among the HMAC keys would be a secret that is public.
        raise BadKey(f"key {path} is a key for signatures", "set algorithm: sig, or name a key for hmac")
    return key


def read_public_key(path: str) -> bytes:
    """Read a public key from a file, as PEM. Raises BadKey, also if other users can replace the file."""
    key, info = _read(path)
    mode = stat.S_IMODE(info.st_mode)
    if mode & 0o022:
        raise BadKey(f"public key {path} has mode {mode:04o}: others can replace it", f"chmod 644 {path}")
    _check(key, path, info)
    _check_pem(key, "public_key", path)
    return key


def passed_key(path: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Where systemd has put the key that stands at ``path``, if it was passed as a credential of this service:
    ``LoadCredential=keys:FOLDER`` calls a file of that folder ``keys_<file>``, and what lies deeper by its folders too;
    one that was loaded by itself may be called like its file.
    """
    directory = environ.get("CREDENTIALS_DIRECTORY")
    if not directory:
        return None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    # The longest name first: two folders may hold files of the same name.
    names = ["keys_" + "_".join(parts[start:]) for start in range(len(parts))] + parts[-1:]
    return next((found for name in names if os.path.lexists(found := os.path.join(directory, name))), None)


def _read(path: str) -> tuple[bytes, os.stat_result]:
    try:
        # Without waiting: a pipe without a writer must not block a daemon.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise BadKey(f"key {path} is not a regular file", "name a file")
            return file.read(_MAX_FILE + 1).rstrip(b"\r\n"), info
    except OSError as error:
        raise BadKey(f"cannot read key {path}: {error.strerror}", f"{_HOW_TO}, readable for the daemon") from error


def _check(key: bytes, path: str, info: os.stat_result) -> None:
    if info.st_uid not in (0, os.geteuid()):
        raise BadKey(f"key {path} belongs to uid {info.st_uid}", f"chown {os.geteuid()} {path}")
    if len(key) > _MAX_FILE:
        raise BadKey(f"key {path} has more than {_MAX_FILE} bytes, so it is not a key", "use the file of the key")
    if len(key) < MIN_KEY:
        raise BadKey(f"key {path} has {len(key)} bytes, at least {MIN_KEY} are required", _HOW_TO)


def _check_pem(key: bytes, kind: Literal["private_key", "public_key"], path: str) -> None:
    from bccnd.core.trust import signatures  # loaded only where it is needed

    try:
        getattr(signatures, kind)(key)
    except ValueError as error:
        raise BadKey(f"key {path}: {error}", "make a pair with 'bccn keygen --algorithm sig FILE'") from error
