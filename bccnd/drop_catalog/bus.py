"""Drops between this daemon and local programs."""

from __future__ import annotations

from typing import Final

from bccnd.drop_catalog.entry import BUG, BUG_LOG, family, serious, usual

_FIX_CLIENT: Final = "Correct the client; it received `!/bccn/error`."
_READ_FASTER: Final = "Make the client read faster or in batches, narrow its patterns"

#: in the order of the status page
DROPS: Final = (
    *family(
        "deliveries_dropped",
        "reason",
        "a message",
        "`bccn clients`: which queues are long, and which clients lost messages; `journalctl -u bccnd "
        "BCCND_DROP={name}` for earlier ones",
        serious(
            "queue_messages",
            "A client reads too slowly: its queue holds bus.queue.messages messages, and it missed further ones.",
            f"{_READ_FASTER}, or raise bus.queue.messages.",
        ),
        serious(
            "queue_bytes",
            "A client reads too slowly: its queue holds bus.queue.bytes bytes, and it missed further messages.",
            f"{_READ_FASTER}, or raise bus.queue.bytes.",
        ),
        serious(
            "user_queue_bytes",
            "The clients of one user read too slowly: their queues together hold bus.user.queue_bytes, and one missed "
            "a message.",
            "Find the client that does not read, or raise bus.user.queue_bytes.",
        ),
        usual(
            "not_queued",
            "A client was not ready, and asked that messages are not queued for it (blocking/soft/discard).",
            "Nothing, unless the client should use another blocking mode.",
        ),
        serious(
            "too_big",
            "A message is larger than the kernel accepts in one packet: the client missed it.",
            "Raise net.core.wmem_max.",
        ),
        usual(
            "client_ended",
            "A client was disconnected because of this message, as it asked for (blocking/.../error).",
            "See clients_ended, slow.",
            "`journalctl -u bccnd BCCND_EVENT=client_ended`",
        ),
        usual(
            "client_gone",
            "A client disconnected while messages were queued for it.",
            "Nothing, unless the client should not have ended.",
            "`bccn clients`; the log of that program",
        ),
    ),
    serious(
        "control_dropped",
        "A client's queue was full: a reply of the daemon was dropped, and the client waits for it in vain.",
        "Make the client read; deliveries_dropped lists it as slow.",
        "`bccn clients`: which queue is full",
    ),
    *family(
        "clients_refused",
        "reason",
        "a program",
        "`journalctl -u bccnd BCCND_DROP={name}`: uid, pid and program; `bccn clients`",
        serious(
            "too_many_clients",
            "A connection was refused: bus.max_clients clients are connected.",
            "Find the program that opens so many, or raise bus.max_clients.",
        ),
        serious(
            "too_many_clients_of_user",
            "A connection was refused: its user has bus.user.clients connections.",
            "Find the program that opens so many, or raise bus.user.clients.",
        ),
        serious(
            "not_admitted",
            "A connection was refused: mode and group of the socket do not admit its user.",
            "Check bus.mode and bus.group, or leave it if the refusal is intended.",
        ),
        serious("bug", "A connection was refused because of a bug in bccnd.", BUG, BUG_LOG),
    ),
    *family(
        "clients_ended",
        "reason",
        "a program",
        "`journalctl -u bccnd BCCND_EVENT=client_ended`: uid, pid and program",
        serious(
            "slow",
            "A client that read too slowly was disconnected, as its blocking mode asks for.",
            "Make it read faster, or choose another blocking mode.",
            "`journalctl -u bccnd -u bccnd-nng -u bccnd-broker BCCND_DROP=slow`: which client; `bccn clients`, "
            "`bccn gateways`",
        ),
        serious(
            "pid_reused",
            "A connection outlived its process, and the pid now belongs to another one: the connection was closed.",
            "Make programs close their connections before they end, and not pass them to others.",
            "`journalctl -u bccnd BCCND_DROP=pid_reused`: uid, pid and program",
        ),
        serious("bug", "A client was disconnected because of a bug in bccnd.", BUG, BUG_LOG),
    ),
    *family(
        "client_errors",
        "reason",
        "a program's frame",
        "`journalctl -u bccnd BCCND_DROP={name}` if it was logged; the client's own log (it received `!/bccn/error`)",
        usual("empty", "Empty frame.", _FIX_CLIENT),
        usual("unknown_verb", "Unknown verb in a frame.", _FIX_CLIENT),
        usual("no_payload", "Message without a zero byte after its key.", _FIX_CLIENT),
        serious("frame_too_long", "Frame longer than 409,600 bytes: it was ignored.", "Send less in one frame."),
        serious(
            "not_permitted",
            "Access rules do not permit the request: it was refused.",
            "Add a rule under 'access', or leave it if the refusal is intended.",
        ),
        serious(
            "no_link",
            "A gateway sent something that is not a datagram of a link: it was ignored.",
            "Run the same version of daemon and gateway.",
        ),
        usual("pattern_too_long", "Pattern of more than 1,024 bytes or 64 levels.", _FIX_CLIENT),
        serious(
            "too_many_subscriptions",
            "Subscription refused: the client, or all clients of its user, hold the maximum number or memory of "
            "patterns (1 KiB each).",
            "Subscribe to a whole branch, or raise bus.max_subscriptions or bus.user.subscriptions.",
        ),
        serious(
            "too_many_wildcards",
            "Subscription refused: the patterns of all clients of its user have wildcards at too many places.",
            "Use fewer wildcards in the middle of patterns, or the same ones, or raise bus.user.wildcards.",
        ),
        usual("not_subscribed", "UNSUB of a pattern that was not subscribed to.", _FIX_CLIENT),
        usual(
            "reserved_key",
            "Message under a key that is reserved for the bus: it was not delivered.",
            "Choose another channel; the client received `!/bccn/error`.",
        ),
        usual(
            "bad_channel",
            "The key is not a valid channel name: the message was delivered on this host only.",
            "Nothing if that is intended; else choose another channel.",
        ),
        usual(
            "bad_target",
            "Invalid target: the message was delivered on this host only.",
            "Use an identity as the target; the client received `!/bccn/error`.",
        ),
        serious(
            "not_perl_safe",
            "Readers that use the Perl module would discard this channel: the message was delivered on this host only.",
            "Choose another channel, or set names: any if there are no such readers.",
        ),
        serious(
            "no_signing_key",
            "This host has no private key to sign with: the message was delivered on this host only.",
            "Add a private key to integrity.keys (`bccn keygen --algorithm sig FILE` makes one).",
        ),
        serious(
            "too_long",
            "The message does not fit into one datagram: it was delivered on this host only.",
            "Send less in one message: at most 1400 bytes with source, channel and integrity check.",
        ),
        usual(
            "send_failed",
            "The kernel refused to send on a segment: other hosts of that segment did not receive the message.",
            "See send_errors.",
        ),
        usual("unknown_control", "Unknown control message.", "Run the same version of client and bccnd."),
        usual("bad_tag", "Invalid tag.", _FIX_CLIENT),
        usual("unknown_dialect", "Unknown dialect.", _FIX_CLIENT),
        usual(
            "subscribed",
            "Change of dialect by a client that already has subscriptions.",
            "Choose the dialect before subscribing; the client received `!/bccn/error`.",
        ),
        serious(
            "bad_report",
            "Invalid report of a gateway or of the recorder.",
            "Run the same version of daemon, gateway and recorder.",
        ),
        usual("unknown_listing", "Unknown listing requested.", "Run the same version of client and bccnd."),
        usual(
            "listing_dropped",
            "Next page of a listing that was dropped, because the user had begun too many others.",
            "Ask for a listing again, and for all its pages; end programs that leave listings unfinished.",
        ),
    ),
)
