"""Drops between a segment and this daemon: datagrams received and sent, and the state kept about sources."""

from __future__ import annotations

from typing import Final

from bccnd.drop_catalog.entry import family, serious, usual

_FIX_SENDER: Final = "Find the sender and correct that program."
_SOURCES: Final = "`bccn sources`: which sources there are, and how many"

#: in the order of the status page
DROPS: Final = (
    serious(
        "socket_drops",
        "The segment's receive buffer was full: the kernel dropped datagrams, and clients of this host missed them.",
        "Raise receive_buffer of this segment, and ReceiveBuffer= of its socket unit.",
        "`journalctl -u bccnd BCCND_DROP=socket_drops`, which names the segment and its buffer; `vmstat 1`; for the "
        "broker `ss -uamp`, whose last number is `d` with the datagrams dropped",
        "a segment",
    ),
    *family(
        "datagrams",
        "verdict",
        "a datagram",
        "`bccn tap -v {name}`: the sender's address, and the source that the datagram names",
        usual(
            "duplicate",
            "Copy of a datagram that was already delivered. Repeats, parallel paths and networks make such copies.",
            "Nothing. If nearly all datagrams are duplicates, check how often their sender repeats (repeat.copies).",
        ),
        usual(
            "stale",
            "Late datagram: later ones of the same source were already delivered, so it could not be delivered in "
            "order.",
            "Set dedup.late: deliver if late is better than never; else find the cause of reordering on the way.",
            "`bccn tap -v stale`: whether one source is affected or all",
        ),
        serious(
            "replayed",
            "Reused sequence number: another program sent an old datagram again, or the source restarted its numbers.",
            "Find out which. A program must start above its last number, for example at the clock in microseconds.",
        ),
        usual(
            "looped",
            "This host's own broadcast, received by its own socket.",
            "Nothing, unless identity_conflicts is above zero.",
            "`bccnd_identity_conflicts_total`, or the same name on the status page",
        ),
        usual("not_addressed", "Directed message for a client of another host.", "Nothing."),
        serious(
            "oversize",
            "Datagram longer than max_datagram.",
            "Find the sender. Raise max_datagram only if it belongs to the fleet.",
        ),
        serious(
            "bad_envelope",
            "Not a BCCN datagram: another program's traffic on this port, or damage.",
            "Find the sender and give that program another port.",
        ),
        serious(
            "length_mismatch",
            "Length field and actual length differ: the datagram was truncated, or its sender computes it wrongly.",
            "Find the sender. If datagrams are truncated, check the MTU of the path.",
        ),
        serious(
            "unsupported_version",
            "Datagram of another protocol version.",
            "Run the same protocol version on this host and on the sender.",
        ),
        serious(
            "integrity_missing",
            "Unsigned datagram, while integrity.required is set.",
            "Sign on these hosts too, or set integrity.required: false until all hosts sign.",
        ),
        serious(
            "integrity_unknown",
            "Unverifiable datagram: its integrity algorithm differs, or this host has no key of its sender.",
            "Set the same integrity on all hosts, or integrity.unverifiable: accept until they agree.",
        ),
        serious(
            "integrity_failed",
            "Integrity check failed: signed with another key, damaged, or forged.",
            "Install the right key on hosts of the fleet, and identify all other senders.",
        ),
        serious("bad_body", "Invalid body: it is not three header fields and a payload.", _FIX_SENDER),
        serious("bad_src", "Invalid source name.", _FIX_SENDER),
        serious("bad_seq", "Invalid sequence number: not an unsigned integer of 64 bits.", _FIX_SENDER),
        serious("bad_channel", "Invalid channel name.", _FIX_SENDER),
        serious("bad_target", "Invalid target: it begins with `?` or `/`.", _FIX_SENDER),
        serious(
            "internal_error",
            "The datagram caused an error in bccnd itself and was not delivered.",
            "Report the bug with the whole log entry (-o verbose).",
            "`journalctl -u bccnd BCCND_EVENT=internal_error -o verbose`",
        ),
    ),
    serious(
        "identity_conflicts",
        "Another sender uses the identity of a client of this host: its datagrams are not delivered, and count as "
        "looped too.",
        "Give every host its own 'host', and every program its own name.",
        "`journalctl -u bccnd BCCND_DROP=identity_conflicts`: the identity and the other sender's address",
    ),
    *family(
        "sources_forgotten",
        "cause",
        "a source",
        _SOURCES,
        usual("expired", "State of a source that was silent for dedup.expire, or died, was removed.", "Nothing."),
        serious(
            "evicted",
            "The table of sources is full: the oldest one was removed, and copies of its datagrams may be delivered "
            "again.",
            "Raise dedup.max_sources, or find the sender of so many source names.",
        ),
        serious(
            "nameless_evicted",
            "The table of messages from anonymous senders (`?`) is full: a copy of a removed one may be delivered "
            "again.",
            "Give these programs names, or find the sender that floods the segment.",
        ),
        serious(
            "own_evicted",
            "Too many clients of this host have left: the identity of one was forgotten early, and its last broadcasts "
            "may be delivered to this host.",
            "Find the program that connects and disconnects so often.",
        ),
        serious(
            "restarts_evicted",
            "Too many sources restarted: one restart was forgotten early, and datagrams from before it may be "
            "delivered again if a link brings them.",
            "Find the sources that restart so often.",
        ),
        usual("dead_evicted", "The list of dead sources is full: the oldest one was removed.", "Nothing."),
    ),
    serious(
        "heartbeats_unwatched",
        "The table of sources is full: heartbeats of further ones are ignored, and their silence is not reported.",
        "Raise dedup.max_sources, or find the sender of so many source names.",
        _SOURCES,
    ),
    *family(
        "reports_refused",
        "reason",
        "a report",
        "`bccn sub --json bccn/report/`: the reports as they arrive, and their senders",
        usual(
            "bad_format",
            "Message on a channel of reports that is no report, or one of a format that this version does not know.",
            "Find the sender. Programs must not publish on bccn/report/.",
        ),
        serious(
            "wrong_sender",
            "Report about a host or its programs that the daemon of another host sent; or another daemon has the name "
            "of this host.",
            "Give every host its own 'host'. If they have, find the sender: somebody forges reports.",
        ),
        serious(
            "impossible",
            "Report with impossible numbers: they run backward, or far ahead. The figures of its host stay as they "
            "were.",
            "Check that only one daemon runs under that host's name; if so, find who forges its reports.",
        ),
        usual(
            "outdated",
            "Report that arrived after a later one of the same host. So do those of a daemon that has restarted under "
            "the same pid behind a clock that was set back, for three intervals.",
            "Nothing.",
        ),
        serious(
            "too_many",
            "Report of a host that sends more of them than a daemon does.",
            "Check that only one daemon runs under that host's name; if so, find who forges its reports.",
        ),
    ),
    usual(
        "fleet_hosts_evicted",
        "The matrix of receivers and senders is full: the host heard least recently was removed, or a sender left out.",
        "Raise reports.max_hosts, or find the sender of so many host names.",
        _SOURCES,
    ),
    serious(
        "send_errors",
        "The kernel refused to send a datagram: other hosts did not receive it.",
        "Check that the interface is up, has an address and a route, and that no firewall blocks it.",
        "`journalctl -u bccnd BCCND_DROP=send_errors`, which names the kernel's error; `ip address`, `ip route`, "
        "`nft list ruleset`",
    ),
    serious(
        "copies_dropped",
        "A repeated copy of a datagram was not sent: too many copies were waiting, or it would have been too late.",
        "Repeat fewer channels or fewer times (repeat), or check whether this host was stalled.",
        "`repeat` in `/etc/bccnd/bccnd.yaml`; `bccn top` for the busiest channels",
    ),
)


LOST: Final = serious(
    "messages_lost",
    "Messages of a source never arrived here: their sequence numbers are missing for longer than dedup.horizon.",
    "Find the source in the list of sources. If many hosts miss the same messages, check that sender and its switch "
    "port; if only this host does, check its network card, its path and socket_drops.",
    "`bccn sources`: whose messages are missing; socket_drops of this host and of the others",
)
