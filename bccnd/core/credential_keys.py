"""Secret keys: ``!/cred/<gid>/<uid>/<pid>/<rest>``, which reach only whom they name.

Law: who subscribes must be what the key says; a field that the key leaves empty names nobody in particular, and a
field that a pattern leaves empty stands for whatever the subscriber is. No wildcard stands for a credential.
Source: sbus, "Secret messages".
"""

from __future__ import annotations

from itertools import product
from typing import Final

PREFIX: Final = b"!/cred/"


def is_secret(key: bytes) -> bool:
    """Whether a key has all the parts of a secret one."""
    return _split(key) is not None


def own_patterns(pattern: bytes, gid: int, uid: int, pid: int) -> list[bytes] | None:
    """The patterns that a subscription of this subscriber stands for; None where it asks for what is not his.

    An empty field takes the keys that name the subscriber there, and those that name nobody.
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
    """The three credentials and the rest."""
    parts = key.removeprefix(PREFIX).split(b"/", 3)
    if not key.startswith(PREFIX) or len(parts) != 4 or any(part and not part.isdigit() for part in parts[:3]):
        return None
    return parts[:3], parts[3]
