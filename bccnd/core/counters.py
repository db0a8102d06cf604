"""Counters of the hot path: plain integers, which get names and labels only when they are read."""

from __future__ import annotations

from typing import Final

from bccnd.core.verdicts import NAMES
from bccnd.native.counts import Counts

#: the largest valid count
MAX_COUNT: Final = 2**63 - 1


def read_count(value: object) -> int:
    """Read a count from another program; negative ones are 0. Raises ValueError for anything but a 64-bit integer."""
    if not isinstance(value, int) or not -MAX_COUNT <= value <= MAX_COUNT:
        raise ValueError("a count must be an integer of 64 bits")
    return max(0, value)


class SegmentCounters:
    """Counts of one segment since the start."""

    __slots__ = ("name", "received", "send_errors", "sent", "verdict_counts")

    def __init__(self, name: str) -> None:
        self.name = name
        self.received = 0
        #: indexed by the numbers of verdicts.py
        self.verdict_counts = Counts(len(NAMES))
        self.sent = 0
        #: by the errno's name
        self.send_errors: dict[str, int] = {}

    @property
    def verdicts(self) -> list[int]:
        """Datagrams by verdict; a copy."""
        return self.verdict_counts.values()

    def send_failed(self, error: str) -> None:
        self.send_errors[error] = self.send_errors.get(error, 0) + 1


class BusCounters:
    """Counts of the local bus since the start."""

    __slots__ = ("deliveries", "dropped", "ended", "errors", "held", "published", "refused", "untold")

    def __init__(self) -> None:
        self.deliveries = 0
        self.published = 0
        #: connections refused, clients disconnected by the daemon, publishers delayed
        self.refused: dict[str, int] = dict.fromkeys(REFUSE_REASONS, 0)
        self.ended: dict[str, int] = dict.fromkeys(END_REASONS, 0)
        self.held: dict[str, int] = dict.fromkeys(HOLD_REASONS, 0)
        #: control messages dropped because the client's queue was full
        self.untold = 0
        self.dropped: dict[str, int] = dict.fromkeys(DROP_REASONS, 0)
        #: errors sent to clients as !/bccn/error, by those of `ERROR_REASONS` that occurred
        self.errors: dict[str, int] = {}


#: why a message for a client was dropped
DROP_REASONS: Final = (
    "queue_messages", "queue_bytes", "user_queue_bytes", "not_queued", "too_big", "client_ended", "client_gone",
    "match_limit",
)  # fmt: skip
REFUSE_REASONS: Final = ("too_many_clients", "too_many_clients_of_user", "not_admitted", "bug")
END_REASONS: Final = ("slow", "pid_reused", "bug")
#: why a client's frame was refused, or its message was not broadcast
ERROR_REASONS: Final = (
    "empty", "unknown_verb", "no_payload", "frame_too_long",
    "not_permitted", "no_link", "pattern_too_long", "too_many_subscriptions", "not_subscribed",
    "reserved_key", "bad_channel", "bad_target", "not_perl_safe", "no_signing_key", "too_long", "send_failed",
    "unknown_control", "bad_tag", "unknown_dialect", "subscribed", "bad_report", "unknown_listing", "listing_dropped",
)  # fmt: skip
HOLD_REASONS: Final = ("rate", "slow_reader")
