"""What gateways say of what they drop, and of peers that they refuse or end: the meaning, and the remedy."""

from __future__ import annotations

from typing import Final

#: what it means that something was dropped for a reason, and what helps; what filters keep back is no news
NNG_DROPPED: Final = {
    "queue_full": (
        "messages for peers that take less than comes were dropped",
        "see which ones in 'bccn gateways'; send them less (gateways.nng.send), or more slowly",
    ),
    "bus_full": (
        "messages came faster than the daemon takes them",
        "see 'bccn top', and take less (gateways.nng.receive)",
    ),
    "late": (
        "messages had waited for too long to be passed on",
        "see whether this host has stood still or is overloaded",
    ),
    "not_connected": ("messages were for a daemon or a peer that had gone", "see the lines before this one"),
    "oversize": ("messages were larger than any datagram", "see who sends them: 'bccn gateways' names the peers"),
    "slow": (
        "messages or links fell because this host, or a peer, did not keep up",
        "see the lines before this one, 'bccn top' and docs/links.md",
    ),
    "no_id": ("connections that said nothing were cut off", "see who connects there: ss -tn"),
    "untrusted": ("peers were refused for their certificates", "see docs/links.md for how these are made and checked"),
    "malformed": ("peers or messages did not speak what is spoken here", "see who connects there: ss -tn"),
}

#: what it means that something was dropped for a reason, and what helps; of other reasons each case is said by itself
BROKER_DROPPED: Final = {
    "queue_full": (
        "messages for subscribers that take less than comes were dropped",
        "see which ones in 'bccn gateways'; more may wait with gateways.broker.queue",
    ),
    "bus_full": ("publications came faster than the daemon takes them", "see bus.user.rate, and 'bccn top'"),
    "not_connected": ("messages were for a daemon or a subscriber that had gone", "see the lines before this one"),
    "filtered": (
        "publications were refused by the daemon's rules",
        "let this user publish and subscribe (access), or leave it at that",
    ),
    "oversize": (
        "publications were longer than a publication or a datagram may be",
        "send at most 1500 bytes, and with 'broadcast: true' what fits into 1400 with its topic",
    ),
    "socket_drops": (
        "publications came faster than they were read, until the kernel had no room for more",
        "send them more slowly, or raise net.core.rmem_max",
    ),
    "id_evicted": (
        "ids that were away, with what they had subscribed to, were forgotten for others",
        "know more of them (gateways.broker.max_ids)",
    ),
    "malformed": ("publications or requests were none", "see who sends them, and what: docs/broker.md"),
    "no_topic": (
        "channels were no topics (longer than 50 bytes), or publications without a topic",
        "subscribe to less than everything, or use shorter channels",
    ),
    "too_many_subscriptions": (
        "subscriptions were refused",
        "allow more of them (gateways.broker.max_subscriptions for an id, bus.max_subscriptions for all together)",
    ),
}
#: why somebody was refused or ended, in words, and what helps
BROKER_ENDED: Final = {
    "no_id": ("it has not said its id", "this is the port for subscribers of the broker: see who connects there"),
    "duplicate_id": ("somebody is connected with this id", "give each subscriber an id of its own"),
    "too_many_ids": ("all ids that may be known are connected", "allow more with gateways.broker.max_ids"),
    "malformed": ("it has sent what is no request", "see who connects there"),
    "slow": ("it has taken nothing while messages for it were dropped", "see why it does not read"),
    "idle": ("it has subscribed to nothing and said nothing", "let it subscribe, or raise gateways.broker.idle"),
}
