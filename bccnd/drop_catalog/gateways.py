"""Drops of other processes: gateways and the recorder, which report them to the daemon."""

from __future__ import annotations

from typing import Final

from bccnd.drop_catalog.entry import family, serious, usual

#: in the order of the status page
DROPS: Final = (
    *family(
        "gateway_dropped",
        "reason",
        "a gateway",
        "`bccn gateways`: which gateway and which peer; `journalctl -u bccnd -u bccnd-nng -u bccnd-broker "
        "BCCND_DROP={name}`",
        serious(
            "queue_full",
            "A peer reads too slowly: the gateway's queue for it is full, and it missed a message.",
            "Find out why the peer is slow; send it less (gateways.nng.send), or raise gateways.nng.queue or "
            "gateways.broker.queue.",
        ),
        serious(
            "bus_full",
            "The daemon did not accept a peer's message in time: it was not delivered.",
            "Check the load of the daemon, and bus.user.rate; accept less (gateways.nng.receive).",
        ),
        usual(
            "filtered",
            "Filters or access rules exclude the channel in this direction.",
            "Nothing, if gateways.nng.send, gateways.nng.receive and access are as intended.",
        ),
        usual(
            "nameless",
            "Message of an anonymous sender (`?`): links do not carry it.",
            "Set gateways.nng.nameless: true if they should.",
        ),
        serious(
            "late",
            "A message waited for longer than dedup.horizon: it was not forwarded to other segments.",
            "Check whether this host was stalled or is overloaded.",
            "`bccn top`; `journalctl -u bccnd -u bccnd-nng BCCND_DROP=late`; whether this host was suspended",
        ),
        serious("oversize", "A peer sent a message too large to carry.", "Find the sender."),
        serious(
            "malformed",
            "A peer does not follow the gateway's protocol: its message or its connection was dropped.",
            "Find the program that connects or sends to the gateway.",
        ),
        serious(
            "no_topic",
            "A channel does not fit into a broker topic, or a publication has none: it was not forwarded.",
            "Subscribe to less than everything, or use shorter channels.",
        ),
        serious(
            "not_connected",
            "The connection to the daemon or to a peer was closed before a message was sent.",
            "Check the log for which connection was closed, and why.",
        ),
        serious(
            "too_many_peers",
            "A connection was refused: the maximum number of peers is connected to the gateway.",
            "Raise gateways.nng.max_peers or gateways.broker.max_connections, or find the program that connects.",
        ),
        serious(
            "too_many_ids",
            "A broker subscriber was refused: gateways.broker.max_ids are connected.",
            "Raise gateways.broker.max_ids, or find the program that uses so many ids.",
        ),
        serious(
            "too_many_subscriptions",
            "A subscription was refused: the subscriber, or the broker as a whole, has the maximum number.",
            "Raise gateways.broker.max_subscriptions, or bus.max_subscriptions for all together.",
        ),
        serious(
            "too_many_wildcards",
            "A subscription was refused: the subscriber, or the broker as a whole, has wildcards at too many different "
            "places.",
            "Use fewer `*` and `+`, or raise bus.user.wildcards for all together.",
        ),
        serious(
            "duplicate_id",
            "A broker subscriber was refused: another connection uses its id.",
            "Give each subscriber its own id.",
        ),
        serious(
            "no_id",
            "A connection was closed: it did not send an id (to the broker) or a greeting (to a link) in time, or "
            "before another needed its place.",
            "Find the program that connects to the gateway.",
        ),
        usual(
            "idle",
            "An idle connection to the broker was closed: it sent nothing and has no subscription.",
            "Subscribe, or raise gateways.broker.idle.",
        ),
        serious(
            "slow",
            "A peer was too slow and was disconnected, or this host was too slow and missed messages.",
            "Check the path to that peer and its load, or the load of this host.",
            "`journalctl -u bccnd -u bccnd-nng -u bccnd-broker BCCND_DROP=slow`: which client; `bccn clients`, "
            "`bccn gateways`",
        ),
        serious(
            "socket_drops",
            "The broker's UDP receive buffer was full: the kernel dropped publications.",
            "Make publishers send more slowly, or raise net.core.rmem_max.",
            "`journalctl -u bccnd BCCND_DROP=socket_drops`, which names the segment and its buffer; `vmstat 1`; for "
            "the broker `ss -uamp`, whose last number is `d` with the datagrams dropped",
        ),
        usual(
            "id_expired",
            "A broker subscriber was away for gateways.broker.expire: its subscriptions were removed.",
            "Nothing.",
        ),
        serious(
            "id_evicted",
            "The table of broker subscribers is full: one that was away was removed with its subscriptions.",
            "Raise gateways.broker.max_ids, or find the program that uses so many ids.",
        ),
        serious(
            "state_dropped",
            "The broker's stored subscriptions cannot be read: subscribers have to subscribe again.",
            "Check the disk; the file was renamed to *.damaged.",
            "`journalctl -u bccnd -u bccnd-broker BCCND_DROP=state_dropped`: which state",
        ),
        serious(
            "untrusted",
            "A peer was refused: its certificate is missing, invalid, or not signed by a trusted authority.",
            "Check the certificates (docs/links.md), or find the program that connects.",
        ),
        serious(
            "bug",
            "A connection of a gateway, or a step of its work, failed because of a bug in it; everything else goes on.",
            "Report the bug with the whole log entry (-o verbose).",
        ),
    ),
    *family(
        "recorder_dropped_records",
        "reason",
        "a record",
        "`journalctl -u bccnd-recorder BCCND_DROP={name}`; `df -h` for the disk of recorder.spool",
        serious(
            "disk",
            "The recorder cannot write to its disk: records are lost.",
            "Free space, or check the disk; recording resumes automatically.",
        ),
        serious(
            "spool_full",
            "The spool has reached recorder.spool_size while the journal cannot be written: records are lost.",
            "Find out why the journal cannot be written; recording resumes automatically.",
        ),
    ),
    serious(
        "recorder_tap_gap_records",
        "The recorder read too slowly: the daemon dropped records before it received them.",
        "Give the recorder more processor time, or raise bus.queue of the daemon.",
        "`bccn clients`: the recorder's queue and losses; `top` for programs that use the processor",
    ),
    usual(
        "recorder_logs_torn",
        "A recorder was killed while writing: the last, incomplete record of its log was discarded.",
        "Nothing, unless recorders should not be killed.",
        "`journalctl -u bccnd-recorder`: why the previous recorder ended",
    ),
    serious(
        "recorder_logs_set_aside",
        "A recorder log is damaged: records before the damage are in the journal, the rest is lost.",
        "Check disk and memory; then remove the file.",
        "`journalctl -u bccnd-recorder BCCND_DROP=recorder_logs_set_aside`: the file; `journalctl -k`, `smartctl -a`",
    ),
    serious(
        "recorder_logs_removed",
        "A damaged recorder log was removed, because 16 later ones were set aside.",
        "Check disk and memory.",
        "`ls` of recorder.spool for `.log.bad`; `journalctl -k`, `smartctl -a`",
    ),
    usual(
        "recorder_files_removed",
        "Retention removed a file of the journal because of its age or size (recorder.keep).",
        "Nothing, unless more should be kept.",
        "`recorder.keep` in `/etc/bccnd/bccnd.yaml`",
    ),
)
