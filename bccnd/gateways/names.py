"""What gateways and what they count are called, in the configuration, in metrics and in logs.

Law: both lists are short and fixed, so that they can be labels.
"""

from __future__ import annotations

from typing import Final

#: gateways that there are
NAMES: Final = ("nng", "broker")
#: why a gateway lets something fall, or somebody go; they are labels of a metric
REASONS: Final = (
    "queue_full",  # the peer takes less than comes
    "bus_full",  # the daemon takes less than comes
    "filtered",  # a channel that this way is closed for
    "nameless",  # a sender without a name
    "late",  # too old to be passed on
    "oversize",  # larger than can be carried
    "malformed",  # no message of this world
    "no_topic",  # a channel that no topic can hold, or the reverse
    "not_connected",  # nobody is there to take it
    "too_many_peers",
    "too_many_ids",
    "too_many_subscriptions",
    "duplicate_id",
    "no_id",  # a connection that does not say who it is
    "idle",
    "slow",
    "socket_drops",  # the kernel had no room for a publication
    "id_expired",  # a subscriber that was away for too long, with what it had subscribed to
    "id_evicted",  # the same, for want of room
    "state_dropped",  # a file with subscriptions that cannot be read
    "untrusted",  # a certificate that is none, or that nobody vouches for
)
