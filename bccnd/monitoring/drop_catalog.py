"""The catalog of everything that is dropped on this host, by the one name that it has in metrics, log and pages.

Whatever is dropped is counted where that happens, and has an entry here: what it means, and what to do about it. Labels
come from fixed lists, so the table is as long as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from bccnd.monitoring.listener_drops import LINES, VISITORS


class Drop(NamedTuple):
    """``family`` is a metric's, without the prefix, and ``label`` is that of its labels which carries the name; where
    there is none, the family is the name. ``serious``: somebody should look; else it is how things are."""

    name: str
    family: str
    label: str
    serious: bool
    means: str
    remedy: str


#: something that is so, and something that somebody should look at
_USUAL: Final = False
_SERIOUS: Final = True

_Row = tuple[str, bool, str, str]


def _family(name: str, label: str, *rows: _Row) -> Iterator[Drop]:
    for each, serious, means, remedy in rows:
        yield Drop(each, name, label, serious, means, remedy)


def _one(name: str, serious: bool, means: str, remedy: str) -> Drop:
    """A family that is a name."""
    return Drop(name, name, "", serious, means, remedy)


_DATAGRAMS: Final = (
    (
        "duplicate",
        _USUAL,
        "A copy of a datagram that has been delivered already, as repeats, several ways and networks make them.",
        "Nothing; where it is nearly all, see whether a sender repeats more than it means to (repeat.copies).",
    ),
    (
        "stale",
        _USUAL,
        "A datagram that was overtaken by later ones of its source, and came too late to be delivered in order.",
        "Set dedup.late: deliver where late is better than never; else see what on the way reorders.",
    ),
    (
        "replayed",
        _SERIOUS,
        "A number of its source that was used before: sent again by somebody else, or by who has begun to count anew.",
        "Find out which; a program of ours must begin above what it has used, as with the clock in microseconds.",
    ),
    (
        "looped",
        _USUAL,
        "Our own broadcast, come back to our own socket.",
        "Nothing; but see identity_conflicts if that is not zero.",
    ),
    (
        "not_addressed",
        _USUAL,
        "A message to somebody who is not on this host.",
        "Nothing.",
    ),
    (
        "oversize",
        _SERIOUS,
        "A datagram that is longer than max_datagram.",
        "Find out who sends it; raise max_datagram only if it is one of ours.",
    ),
    (
        "bad_envelope",
        _SERIOUS,
        "A datagram that does not begin as one of BCCN does: another program's traffic on this port, or damage.",
        "Find out who sends it, and give that program another port.",
    ),
    (
        "length_mismatch",
        _SERIOUS,
        "A datagram that says another length than it has: cut short on the way, or put together wrongly.",
        "Find out who sends it; where it is cut, see the MTU of the way.",
    ),
    (
        "unsupported_version",
        _SERIOUS,
        "A datagram of another version of the protocol.",
        "Bring this host and the sender to one version.",
    ),
    (
        "integrity_missing",
        _SERIOUS,
        "A datagram that carries no check, while one is required.",
        "Sign on these hosts too, or set integrity.required: false until all do.",
    ),
    (
        "integrity_unknown",
        _SERIOUS,
        "A datagram whose check is of another algorithm, or of a sender whose key nobody has told us.",
        "Set the same integrity on all hosts, or integrity.unverifiable: accept until it is the same.",
    ),
    (
        "integrity_failed",
        _SERIOUS,
        "A datagram whose check does not fit: signed with another key, damaged, or forged.",
        "Give hosts of ours the right key, and find out who the others are.",
    ),
    (
        "bad_body",
        _SERIOUS,
        "A datagram whose body does not have its three fields and a payload.",
        "Find out who sends it, and mend that program.",
    ),
    (
        "bad_src",
        _SERIOUS,
        "A datagram whose sender has a name that none may have.",
        "Find out who sends it, and mend that program.",
    ),
    (
        "bad_seq",
        _SERIOUS,
        "A datagram whose number is none, or has more than 64 bits.",
        "Find out who sends it, and mend that program.",
    ),
    (
        "bad_channel",
        _SERIOUS,
        "A datagram on a channel that none may be called.",
        "Find out who sends it, and mend that program.",
    ),
    (
        "bad_target",
        _SERIOUS,
        "A datagram to somebody whom nobody can be called.",
        "Find out who sends it, and mend that program.",
    ),
    (
        "internal_error",
        _SERIOUS,
        "A datagram that has met a bug in bccnd.",
        "Report it with the whole entry of the log (-o verbose).",
    ),
)

_DELIVERIES: Final = (
    (
        "queue_messages",
        _SERIOUS,
        "A message for a program of this host that does not read fast enough: bus.queue.messages wait for it.",
        "Make it read faster or in batches, narrow its patterns, or raise bus.queue.messages.",
    ),
    (
        "queue_bytes",
        _SERIOUS,
        "A message for a program of this host that does not read fast enough: bus.queue.bytes wait for it.",
        "Make it read faster or in batches, narrow its patterns, or raise bus.queue.bytes.",
    ),
    (
        "user_queue_bytes",
        _SERIOUS,
        "A message for a program of this host while too much waits for all programs of its user together.",
        "Find which of them does not read, or raise bus.user.queue_bytes.",
    ),
    (
        "not_queued",
        _USUAL,
        "A message for a program that has asked that nothing wait for it (blocking/soft/discard).",
        "Nothing, unless it should not have asked for that.",
    ),
    (
        "too_big",
        _SERIOUS,
        "A message for a program of this host that is more than the kernel takes in one packet.",
        "Raise net.core.wmem_max.",
    ),
    (
        "client_ended",
        _USUAL,
        "A message for a program that was disconnected over it, as it has asked for (blocking/.../error).",
        "See clients_ended, slow.",
    ),
    (
        "client_gone",
        _USUAL,
        "A message for a program that had left with messages waiting for it.",
        "Nothing, unless that program should not have ended.",
    ),
    (
        "match_limit",
        _SERIOUS,
        "A message that was matched against only some of a user's patterns, because all of them take too many steps.",
        "Have the programs of this user hold fewer patterns with wildcards in the midst.",
    ),
)

_REFUSED: Final = (
    (
        "too_many_clients",
        _SERIOUS,
        "A program was not let in, because bus.max_clients are connected.",
        "Find out who opens so many, or raise bus.max_clients.",
    ),
    (
        "too_many_clients_of_user",
        _SERIOUS,
        "A program was not let in, because its user has bus.user.clients connections.",
        "Find out which of them opens so many, or raise bus.user.clients.",
    ),
    (
        "not_admitted",
        _SERIOUS,
        "A program was not let in, because the socket is not for its user.",
        "See mode and group of the socket (bus.mode, bus.group), or leave it at that.",
    ),
    (
        "bug",
        _SERIOUS,
        "A program was not let in, because of a bug in bccnd.",
        "Report it with the whole entry of the log (-o verbose).",
    ),
)

_ENDED: Final = (
    (
        "slow",
        _SERIOUS,
        "A program was disconnected that did not read fast enough, and has asked to be ended then.",
        "Make it read faster, or choose another blocking mode there.",
    ),
    (
        "pid_reused",
        _SERIOUS,
        "A connection was ended whose program is no more, and whose pid belongs to another one now.",
        "Have programs close their connections, or not leave them to others, before they end.",
    ),
    (
        "bug",
        _SERIOUS,
        "A program was disconnected because of a bug in bccnd.",
        "Report it with the whole entry of the log (-o verbose).",
    ),
)

_FRAMES: Final = (
    ("empty", _USUAL, "A frame with nothing in it.", "Mend the program; it has been told."),
    ("unknown_verb", _USUAL, "A frame that is none of the bus.", "Mend the program; it has been told."),
    ("no_payload", _USUAL, "A message without a zero byte behind its key.", "Mend the program; it has been told."),
    (
        "frame_too_long",
        _SERIOUS,
        "A frame that is longer than any may be.",
        "Have the program send less at once.",
    ),
    (
        "not_permitted",
        _SERIOUS,
        "A frame by which a program asked for what the rules do not allow it.",
        "See access in the configuration, or leave it at that.",
    ),
    (
        "no_link",
        _SERIOUS,
        "What a gateway has brought is no datagram of a link.",
        "Bring daemon and gateway to one version.",
    ),
    (
        "pattern_too_long",
        _USUAL,
        "A pattern of more than 1,024 bytes or 64 levels.",
        "Mend the program; it has been told.",
    ),
    (
        "too_many_subscriptions",
        _SERIOUS,
        "A pattern beyond those that a program, or all of its user, may hold, in number or memory (1 KiB each).",
        "Have it subscribe to a whole branch, or raise bus.max_subscriptions or bus.user.subscriptions.",
    ),
    ("not_subscribed", _USUAL, "A pattern taken back that was not held.", "Mend the program; it has been told."),
    (
        "reserved_key",
        _USUAL,
        "A message under a key of the bus itself.",
        "Have the program choose another channel; it has been told.",
    ),
    (
        "bad_channel",
        _USUAL,
        "A message under a key that is no channel: it stayed on this host.",
        "Nothing if that is meant; else have the program choose another channel.",
    ),
    (
        "bad_target",
        _USUAL,
        "A message to somebody whom nobody can be called: it stayed on this host.",
        "Have the program name an identity; it has been told.",
    ),
    (
        "not_perl_safe",
        _SERIOUS,
        "A message on a channel that readers of the Perl module would discard: it stayed on this host.",
        "Have the program choose another channel, or set names: any if there are no such readers.",
    ),
    (
        "no_signing_key",
        _SERIOUS,
        "A message that cannot be signed, as this host has no private key: it stayed on this host.",
        "Name a private key in integrity.keys (bccnd keygen --algorithm sig makes one).",
    ),
    (
        "too_long",
        _SERIOUS,
        "A message that does not fit into one datagram: it stayed on this host.",
        "Have the program send less in one message: 1400 bytes with sender, channel and check.",
    ),
    (
        "send_failed",
        _USUAL,
        "A message that the kernel refused to send: it stayed on this host.",
        "See send_errors.",
    ),
    (
        "unknown_control",
        _USUAL,
        "A request that this daemon does not know.",
        "Bring the program and bccnd to one version.",
    ),
    ("bad_tag", _USUAL, "A tag that is none.", "Mend the program; it has been told."),
    ("unknown_dialect", _USUAL, "A dialect that there is not.", "Mend the program; it has been told."),
    (
        "subscribed",
        _USUAL,
        "A change of dialect by a program that holds patterns.",
        "Have it choose its dialect before it subscribes; it has been told.",
    ),
    ("bad_report", _SERIOUS, "A gateway's report that makes no sense.", "Bring daemon and gateway to one version."),
    (
        "unknown_listing",
        _USUAL,
        "A question for a listing that there is not.",
        "Bring the program and bccnd to one version.",
    ),
)

_FORGOTTEN: Final = (
    (
        "expired",
        _USUAL,
        "A source was forgotten that has been silent for dedup.expire, or has died.",
        "Nothing.",
    ),
    (
        "evicted",
        _SERIOUS,
        "A source was forgotten for want of room: a copy of what it has sent may be delivered again.",
        "Raise dedup.max_sources, or find out who makes up so many names.",
    ),
    (
        "nameless_evicted",
        _SERIOUS,
        "A message without a sender's name was forgotten for want of room: a copy of it may be delivered again.",
        "Give these programs names, or find out who floods the segment.",
    ),
    (
        "own_evicted",
        _SERIOUS,
        "A name of a program of this host that has left was given up early: its last broadcasts may come back to us.",
        "Find out which program connects and leaves so often.",
    ),
    (
        "restarts_evicted",
        _SERIOUS,
        "A restart of a source was forgotten early: what a link brings from before it may be delivered again.",
        "Find out which sources begin anew so often.",
    ),
    (
        "dead_evicted",
        _USUAL,
        "A dead source is not listed any more, for want of room.",
        "Nothing.",
    ),
)

_GATEWAYS: Final = (
    (
        "queue_full",
        _SERIOUS,
        "A message for a peer of a gateway that takes less than comes.",
        "See why it does not take it; send it less (gateways.nng.send), or let more wait (gateways.broker.queue).",
    ),
    (
        "bus_full",
        _SERIOUS,
        "A message of a peer of a gateway that the daemon did not take in time.",
        "See what keeps the daemon busy, and bus.user.rate; take less (gateways.nng.receive).",
    ),
    (
        "filtered",
        _USUAL,
        "A message on a channel that this way is closed for, by filters or by rules.",
        "Nothing, if gateways.nng.send and receive, and access, are as they should be.",
    ),
    (
        "nameless",
        _USUAL,
        "A message without a sender's name, which links do not carry.",
        "Set gateways.nng.nameless: true where they should.",
    ),
    (
        "late",
        _SERIOUS,
        "A message that had waited for longer than dedup.horizon, and was not passed on to other segments.",
        "See whether this host has stood still or is overloaded.",
    ),
    (
        "oversize",
        _SERIOUS,
        "A message of a peer of a gateway that is larger than can be carried.",
        "Find out who sends it.",
    ),
    (
        "malformed",
        _SERIOUS,
        "A peer of a gateway, or its message, that does not speak what is spoken there.",
        "Find out who connects or sends there.",
    ),
    (
        "no_topic",
        _SERIOUS,
        "A channel that no topic of the broker can hold, or a publication without a topic.",
        "Have subscribers ask for less than everything, or use shorter channels.",
    ),
    (
        "not_connected",
        _SERIOUS,
        "A message of or for somebody who had gone: the daemon, or a peer of a gateway.",
        "See in the log who went, and why.",
    ),
    (
        "too_many_peers",
        _SERIOUS,
        "A peer was turned away: as many as there may be are connected to the gateway.",
        "Raise gateways.nng.max_peers or gateways.broker.max_connections, or find out who connects.",
    ),
    (
        "too_many_ids",
        _SERIOUS,
        "A subscriber of the broker was turned away: all ids that may be known are connected.",
        "Raise gateways.broker.max_ids, or find out who makes them up.",
    ),
    (
        "too_many_subscriptions",
        _SERIOUS,
        "A subscription beyond those that a subscriber of the broker, or the broker itself, may hold.",
        "Raise gateways.broker.max_subscriptions, or bus.max_subscriptions for all together.",
    ),
    (
        "duplicate_id",
        _SERIOUS,
        "A subscriber of the broker was turned away: somebody is connected with its id.",
        "Give each subscriber an id of its own.",
    ),
    (
        "no_id",
        _SERIOUS,
        "A connection to a gateway was ended that did not say who it is.",
        "See who connects there.",
    ),
    (
        "idle",
        _USUAL,
        "A subscriber of the broker was ended that has subscribed to nothing and said nothing.",
        "Let it subscribe, or raise gateways.broker.idle.",
    ),
    (
        "slow",
        _SERIOUS,
        "A peer of a gateway was ended that did not keep up, or messages fell because this host did not.",
        "See the way to that peer and its load, or that of this host.",
    ),
    (
        "socket_drops",
        _SERIOUS,
        "A publication for the broker that the kernel dropped, because the socket's buffer was full.",
        "Have publishers send more slowly, or raise net.core.rmem_max.",
    ),
    (
        "id_expired",
        _USUAL,
        "A subscriber of the broker was forgotten, with its subscriptions, that was away for gateways.broker.expire.",
        "Nothing.",
    ),
    (
        "id_evicted",
        _SERIOUS,
        "A subscriber of the broker that was away was forgotten, with its subscriptions, for want of room.",
        "Raise gateways.broker.max_ids, or find out who makes ids up.",
    ),
    (
        "state_dropped",
        _SERIOUS,
        "What the broker had written down of subscriptions cannot be read: subscribers have to subscribe again.",
        "See whether the disk is well; the file is kept beside its place as .damaged.",
    ),
    (
        "untrusted",
        _SERIOUS,
        "A peer was turned away whose certificate is none, or that nobody vouches for.",
        "See how certificates are made and checked (docs/links.md), or find out who tries.",
    ),
)

_RECORDS: Final = (
    (
        "disk",
        _SERIOUS,
        "A record was not kept, because the recorder's disk could not be written to.",
        "Make room there, or see whether the disk is well; recording goes on by itself.",
    ),
    (
        "spool_full",
        _SERIOUS,
        "A record was not kept, because recorder.spool_size wait to be put into the journal.",
        "See why the journal cannot be written to; recording goes on by itself.",
    ),
)

#: everything that there is, in the order of its way: the segment, the bus, the log, the gateways, the recorder
DROPS: Final[tuple[Drop, ...]] = (
    _one(
        "socket_drops",
        _SERIOUS,
        "A datagram that the kernel dropped, because the segment's receive buffer was full.",
        "Raise receive_buffer of this segment, and ReceiveBuffer= of its socket unit.",
    ),
    *_family("datagrams", "verdict", *_DATAGRAMS),
    _one(
        "identity_conflicts",
        _SERIOUS,
        "A datagram that somebody else has sent under the name of a program of this host; counted as looped, too.",
        "Give every host a 'host' of its own, and every program a name of its own.",
    ),
    *_family("sources_forgotten", "cause", *_FORGOTTEN),
    _one(
        "heartbeats_unwatched",
        _SERIOUS,
        "A heartbeat of a source that is not watched, because too many are: nobody is told when it falls silent.",
        "Raise dedup.max_sources, or find out who makes up so many names.",
    ),
    _one(
        "send_errors",
        _SERIOUS,
        "A datagram that the kernel refused to send.",
        "See whether the interface is up, has an address and a route, and whether a firewall refuses it.",
    ),
    _one(
        "copies_dropped",
        _SERIOUS,
        "A further copy of a datagram that was not sent: too many were waiting, or it would have come too late.",
        "Repeat fewer channels or fewer times (repeat), or see whether this host has stood still.",
    ),
    *_family("deliveries_dropped", "reason", *_DELIVERIES),
    _one(
        "control_dropped",
        _SERIOUS,
        "An answer of the daemon to a program whose queue was full: it waits for it in vain.",
        "Make that program read; it is among the slow ones of deliveries_dropped.",
    ),
    *_family("clients_refused", "reason", *_REFUSED),
    *_family("clients_ended", "reason", *_ENDED),
    *_family("client_errors", "reason", *_FRAMES),
    _one(
        "state_dropped",
        _SERIOUS,
        "Something that the daemon before this one has left and that is not understood.",
        "Expected once after a downgrade; else report it.",
    ),
    _one(
        "clients_not_kept",
        _SERIOUS,
        "A connection that will not outlive a restart of the daemon.",
        "Raise FileDescriptorStoreMax=, LimitNOFILE= or MemoryMax= of the service.",
    ),
    _one(
        "sources_not_kept",
        _SERIOUS,
        "What is known of sources could not be written down: after a restart copies may be delivered again.",
        "Raise LimitNOFILE= or MemoryMax= of the service.",
    ),
    _one(
        "notifications_lost",
        _SERIOUS,
        "A notification that systemd did not take: what it shows of this daemon, and keeps for the next one, may be "
        "out of date.",
        "See whether systemd itself is well (systemctl status).",
    ),
    *_family("visitors_refused", "reason", *VISITORS),
    *_family("log_lines_dropped", "reason", *LINES),
    *_family("gateway_dropped", "reason", *_GATEWAYS),
    *_family("recorder_dropped_records", "reason", *_RECORDS),
    _one(
        "recorder_tap_gap_records",
        _SERIOUS,
        "A record that was lost between the daemon and the recorder, which did not read fast enough.",
        "Give this host more processor time, or raise bus.queue of the daemon.",
    ),
    _one(
        "recorder_logs_torn",
        _USUAL,
        "A log of the recorder that ended in the midst of a record, as one does whose recorder was killed.",
        "Nothing, unless recorders should not have been killed.",
    ),
    _one(
        "recorder_logs_set_aside",
        _SERIOUS,
        "A log of the recorder that could not be read to its end; what precedes the damage is in the journal.",
        "See whether disk and memory are in order; then remove the file.",
    ),
    _one(
        "recorder_logs_removed",
        _SERIOUS,
        "A log that was set aside and that was removed, because 16 later ones were set aside since.",
        "See whether disk and memory are in order.",
    ),
    _one(
        "recorder_files_removed",
        _USUAL,
        "A file of the journal that was removed for its age, or for want of room (recorder.keep).",
        "Nothing, unless more should be kept.",
    ),
)
