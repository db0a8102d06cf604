"""Secret keys ``!/cred/<gid>/<uid>/<pid>/<rest>``, delivered only to clients with these credentials.

Invariant: a subscriber has the credentials in the key. An empty field in a key means any, in a pattern the subscriber's
own; wildcards do not match credentials. Source: sbus, "Secret messages".
"""

from __future__ import annotations

from itertools import product
from typing import Final

PREFIX: Final = b"!/cred/"


def is_secret(key: bytes) -> bool:
    """Whether a key is a complete secret key."""
    return _split(key) is not None


def own_patterns(pattern: bytes, gid: int, uid: int, pid: int) -> list[bytes] | None:
    """Expand a subscriber's pattern; None if it has credentials of another.

    An empty field matches keys with the subscriber's credential and keys where the field is empty.
    """
    parts = _split(pattern)
    if parts is None:
        return None
    fields, rest = parts
    choices: list[tuple[bytes, ...]] = []
    for field, own in zip(fields, (b"%d" % gid, b"%d" % uid, b"%d" % pid), strict=True):
        if field not in (b"", own):
            return None
        choices.append((field,) if field else (own, b""))
    return [PREFIX + b"/".join((*chosen, rest)) for chosen in product(*choices)]


def _split(key: bytes) -> tuple[list[bytes], bytes] | None:
    """Split a key into the three credentials and the rest."""
    parts = key.removeprefix(PREFIX).split(b"/", 3)
    if not key.startswith(PREFIX) or len(parts) != 4 or any(part and not part.isdigit() for part in parts[:3]):
        return None
    return parts[:3], parts[3]
