"""Drops of the daemon itself: state over a restart, the service manager, the metrics listener and the log."""

from __future__ import annotations

from typing import Final

from bccnd.drop_catalog.entry import BUG, BUG_LOG, family, serious, usual

#: in the order of the status page
DROPS: Final = (
    serious(
        "state_dropped",
        "State left by the previous daemon is damaged or of an unknown version, and was discarded.",
        "Expected once after a downgrade; else report it.",
        "`journalctl -u bccnd -u bccnd-broker BCCND_DROP=state_dropped`: which state",
        "the daemon",
    ),
    serious(
        "clients_not_kept",
        "A connection could not be stored with systemd: it will be closed by a restart of the daemon.",
        "Raise FileDescriptorStoreMax=, LimitNOFILE= or MemoryMax= of the service.",
        "`journalctl -u bccnd BCCND_DROP=clients_not_kept`; `systemctl show bccnd -p NFileDescriptorStore`",
    ),
    serious(
        "crashes",
        "The daemon before this one left no readable state: it was killed, crashed, or could not store it. Messages "
        "that it was processing or that waited for clients are lost; each client has received a gap of 0.",
        "Find the cause: a bug (report it), or a lack of memory.",
        "`journalctl -u bccnd BCCND_DROP=crashes`, and the lines of the log before it; `journalctl -k`",
    ),
    serious(
        "sources_not_kept",
        "The numbers of this host's messages or, with dedup.freshness: monotonic, the state of sources could not be "
        "stored while the daemon runs. After a crash with a clock that was set back, other hosts may drop messages of "
        "this host as duplicates; or replayed datagrams may be delivered.",
        "Raise MemoryMax= of the service.",
        "`journalctl -u bccnd BCCND_DROP=sources_not_kept`: the kernel's error",
    ),
    serious(
        "notifications_lost",
        "systemd did not accept a notification: the status that it shows, and the connections that it stores, may be "
        "out of date.",
        "Check systemd itself (systemctl status).",
        "`systemctl is-system-running`; `journalctl -u bccnd BCCND_DROP=notifications_lost`",
    ),
    *family(
        "visitors_refused",
        "reason",
        "the metrics listener",
        "`ss -tnp sport = :9540` (the port of metrics.listen): which programs are connected",
        serious(
            "too_many_visitors",
            "32 connections to the metrics listener were open, and one more came: the oldest one without a request was "
            "closed, or, if all had sent one, the new one.",
            "Find the program that holds them; one Prometheus needs one connection.",
        ),
        usual(
            "slow_visitor",
            "A connection to the metrics listener was closed: it sent no request, or did not read the response, within "
            "ten seconds.",
            "Nothing, unless it is your Prometheus: then check the network between.",
        ),
        usual(
            "bad_request",
            "A connection to the metrics listener was closed: it did not speak HTTP.",
            "Find the program that connects, and check whether metrics.listen should be reachable for it.",
        ),
        usual(
            "foreign_host",
            "A request to the metrics listener was refused: its Host is not a name of this host.",
            "If it is your proxy or your Prometheus, use an address in its URL, or add the name to metrics.hosts.",
        ),
        serious(
            "out_of_descriptors",
            "A connection to the metrics listener got no page: the daemon has run out of descriptors or memory.",
            "Find the clients that hold them (bccn clients), and raise LimitNOFILE= or MemoryMax= of the service.",
        ),
        serious("bug", "A connection to the metrics listener was closed by a bug in bccnd.", BUG, BUG_LOG),
    ),
    *family(
        "log_lines_dropped",
        "reason",
        "a log line",
        "",
        serious(
            "lines_lost",
            "The reader of the log did not accept a line: it is missing, or too long and cut.",
            "Check that the reader of the log runs and has room.",
            "`systemctl status systemd-journald`, `journalctl --disk-usage`",
        ),
        usual(
            "lines_left_out",
            "Log line suppressed: 50 about this kind of event were written within a minute.",
            "Nothing; the metrics count what the log leaves out.",
            "`journalctl -u bccnd -p warning`: which event is so frequent",
        ),
    ),
)
