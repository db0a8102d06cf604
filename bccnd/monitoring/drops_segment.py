"""Drops between a segment and this daemon: datagrams received and sent, and the state kept about sources."""

from __future__ import annotations

from typing import Final

from bccnd.monitoring.drop_entry import SERIOUS, USUAL, DropFamily, Entry, single

_FIX_SENDER: Final = "Find the sender and correct that program."
_SOURCES: Final = "`bccn sources`: which sources there are, and how many"

SOCKET_DROPS: Final = single(
    "socket_drops",
    SERIOUS,
    "The segment's receive buffer was full: the kernel dropped datagrams, and clients of this host missed them.",
    "Raise receive_buffer of this segment, and ReceiveBuffer= of its socket unit.",
    "`journalctl -u bccnd BCCND_DROP=socket_drops`, which names the segment and its buffer; `vmstat 1`; for the "
    "broker `ss -uamp`, whose last number is `d` with the datagrams dropped",
    "a segment",
)

DATAGRAMS: Final = DropFamily(
    "datagrams",
    "verdict",
    "a datagram",
    "`bccn tap -v {name}`: the sender's address, and what the datagram claims to be",
    (
        Entry(
            "duplicate",
            USUAL,
            "Copy of a datagram that was already delivered. Repeats, parallel paths and networks make such copies.",
            "Nothing. If nearly all datagrams are duplicates, check how often their sender repeats (repeat.copies).",
        ),
        Entry(
            "stale",
            USUAL,
            "Late datagram: later ones of the same source were already delivered, so it could not be delivered in "
            "order.",
            "Set dedup.late: deliver if late is better than never; else find what reorders datagrams on the way.",
            "`bccn tap -v stale`: whether one source is affected or all",
        ),
        Entry(
            "replayed",
            SERIOUS,
            "Reused sequence number: another program sent an old datagram again, or the source restarted its numbers.",
            "Find out which. A program must start above its last number, for example at the clock in microseconds.",
        ),
        Entry(
            "looped",
            USUAL,
            "This host's own broadcast, received by its own socket.",
            "Nothing, unless identity_conflicts is above zero.",
            "`bccnd_identity_conflicts_total`, or the same name on the status page",
        ),
        Entry("not_addressed", USUAL, "Directed message for a client of another host.", "Nothing."),
        Entry(
            "oversize",
            SERIOUS,
            "Datagram longer than max_datagram.",
            "Find the sender. Raise max_datagram only if it belongs to the fleet.",
        ),
        Entry(
            "bad_envelope",
            SERIOUS,
            "Not a BCCN datagram: another program's traffic on this port, or damage.",
            "Find the sender and give that program another port.",
        ),
        Entry(
            "length_mismatch",
            SERIOUS,
            "Length field and actual length differ: the datagram was truncated, or its sender computes it wrongly.",
            "Find the sender. If datagrams are truncated, check the MTU of the path.",
        ),
        Entry(
            "unsupported_version",
            SERIOUS,
            "Datagram of another protocol version.",
            "Run the same protocol version on this host and on the sender.",
        ),
        Entry(
            "integrity_missing",
            SERIOUS,
            "Unsigned datagram, while integrity.required is set.",
            "Sign on these hosts too, or set integrity.required: false until all hosts sign.",
        ),
        Entry(
            "integrity_unknown",
            SERIOUS,
            "Unverifiable datagram: its integrity algorithm differs, or this host has no key of its sender.",
            "Set the same integrity on all hosts, or integrity.unverifiable: accept until they agree.",
        ),
        Entry(
            "integrity_failed",
            SERIOUS,
            "Integrity check failed: signed with another key, damaged, or forged.",
            "Install the right key on hosts of the fleet, and identify all other senders.",
        ),
        Entry("bad_body", SERIOUS, "Invalid body: it is not three header fields and a payload.", _FIX_SENDER),
        Entry("bad_src", SERIOUS, "Invalid source name.", _FIX_SENDER),
        Entry("bad_seq", SERIOUS, "Invalid sequence number: not an unsigned integer of 64 bits.", _FIX_SENDER),
        Entry("bad_channel", SERIOUS, "Invalid channel name.", _FIX_SENDER),
        Entry("bad_target", SERIOUS, "Invalid target: it begins with `?` or `/`.", _FIX_SENDER),
        Entry(
            "internal_error",
            SERIOUS,
            "The datagram caused an error in bccnd itself and was not delivered.",
            "Report the bug with the whole log entry (-o verbose).",
            "`journalctl -u bccnd BCCND_EVENT=internal_error -o verbose`",
        ),
    ),
)

IDENTITY_CONFLICTS: Final = single(
    "identity_conflicts",
    SERIOUS,
    "Another sender uses the identity of a client of this host: its datagrams are not delivered, and count as looped "
    "too.",
    "Give every host its own 'host', and every program its own name.",
    "`journalctl -u bccnd BCCND_DROP=identity_conflicts`: the identity and the other sender's address",
)

SOURCES_FORGOTTEN: Final = DropFamily(
    "sources_forgotten",
    "cause",
    "a source",
    _SOURCES,
    (
        Entry(
            "expired", USUAL, "State of a source that was silent for dedup.expire, or died, was removed.", "Nothing."
        ),
        Entry(
            "evicted",
            SERIOUS,
            "The table of sources is full: the oldest one was removed, and copies of its datagrams may be delivered "
            "again.",
            "Raise dedup.max_sources, or find the sender of so many source names.",
        ),
        Entry(
            "nameless_evicted",
            SERIOUS,
            "The table of messages from anonymous senders (`?`) is full: a copy of a removed one may be delivered "
            "again.",
            "Give these programs names, or find the sender that floods the segment.",
        ),
        Entry(
            "own_evicted",
            SERIOUS,
            "Too many clients of this host have left: the identity of one was forgotten early, and its last broadcasts "
            "may be delivered to this host.",
            "Find the program that connects and disconnects so often.",
        ),
        Entry(
            "restarts_evicted",
            SERIOUS,
            "Too many sources restarted: one restart was forgotten early, and datagrams from before it may be "
            "delivered again if a link brings them.",
            "Find the sources that restart so often.",
        ),
        Entry("dead_evicted", USUAL, "The list of dead sources is full: the oldest one was removed.", "Nothing."),
    ),
)

HEARTBEATS_UNWATCHED: Final = single(
    "heartbeats_unwatched",
    SERIOUS,
    "The table of sources is full: heartbeats of further ones are ignored, and their silence is not reported.",
    "Raise dedup.max_sources, or find the sender of so many source names.",
    _SOURCES,
)

SEND_ERRORS: Final = single(
    "send_errors",
    SERIOUS,
    "The kernel refused to send a datagram: other hosts did not receive it.",
    "Check that the interface is up, has an address and a route, and that no firewall blocks it.",
    "`journalctl -u bccnd BCCND_DROP=send_errors`, which names the kernel's error; `ip address`, `ip route`, "
    "`nft list ruleset`",
)

COPIES_DROPPED: Final = single(
    "copies_dropped",
    SERIOUS,
    "A repeated copy of a datagram was not sent: too many copies were waiting, or it would have been too late.",
    "Repeat fewer channels or fewer times (repeat), or check whether this host was stalled.",
    "`repeat` in `/etc/bccnd/bccnd.yaml`; `bccn top` for the busiest channels",
)

LOST: Final = single(
    "messages_lost",
    SERIOUS,
    "Messages of a source never arrived here: their sequence numbers are missing for longer than dedup.horizon.",
    "Find the source in the list of sources. If many hosts miss the same messages, check that sender and its switch "
    "port; if only this host does, check its network card, its path and socket_drops.",
    "`bccn sources`: whose messages are missing; socket_drops of this host and of the others",
)

#: in the order of the status page
FAMILIES: Final = (
    SOCKET_DROPS,
    DATAGRAMS,
    IDENTITY_CONFLICTS,
    SOURCES_FORGOTTEN,
    HEARTBEATS_UNWATCHED,
    SEND_ERRORS,
    COPIES_DROPPED,
)
