"""Verdicts on datagrams: numbers for the hot path, names for users.

Invariant: every datagram read from a socket gets exactly one verdict. The numbers index counters; the names appear in
metrics, logs and the tap.
"""

from __future__ import annotations

from typing import Final

ACCEPTED: Final = 0
REORDERED: Final = 1
RESTART: Final = 2
DUPLICATE: Final = 3
STALE: Final = 4
REPLAYED: Final = 5
LOOPED: Final = 6
NOT_ADDRESSED: Final = 7
INTERNAL_ERROR: Final = 20

#: all verdicts, in the order of their numbers
NAMES: Final = (
    "accepted",
    "reordered",
    "restart",
    "duplicate",
    "stale",
    "replayed",
    "looped",
    "not_addressed",
    "oversize",
    "bad_envelope",
    "length_mismatch",
    "unsupported_version",
    "integrity_missing",
    "integrity_unknown",
    "integrity_failed",
    "bad_body",
    "bad_src",
    "bad_seq",
    "bad_channel",
    "bad_target",
    "internal_error",
)

NUMBERS: Final = {name: number for number, name in enumerate(NAMES)}

#: the last verdict with which a datagram is delivered
LAST_ACCEPTED: Final = RESTART
#: the last verdict that depends on earlier datagrams of the source
LAST_OF_SOURCE: Final = NOT_ADDRESSED


def was_accepted(verdict: int) -> bool:
    """Whether a datagram is passed on to other segments, as one that is addressed to no local client is, too."""
    return verdict <= LAST_ACCEPTED or verdict == NOT_ADDRESSED
