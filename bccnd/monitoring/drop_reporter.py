"""Logs serious drops when their counts increase."""

from __future__ import annotations

from typing import Final

from bccnd import log
from bccnd.bus.requests.recorder_reports import RECORDED
from bccnd.core.wire.verdicts import INTERNAL_ERROR, NAMES
from bccnd.drop_catalog.drops import DROPS
from bccnd.drop_catalog.entry import Drop
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.drop_counts import drop_counters

#: families whose drops are logged where they happen, by events of their own
LOGGED_AT_SOURCE: Final = frozenset(
    {
        *("deliveries_dropped", "clients_refused", "clients_ended", "client_errors", "send_errors"),
        *(
            "state_dropped",
            "crashes",
            "clients_not_kept",
            "sources_not_kept",
            "notifications_lost",
            "log_lines_dropped",
        ),
        *("gateway_dropped", *(family for family, _ in RECORDED)),
    }
)
#: the drops that are logged here, by family and name
_REPORTED: Final = {
    (drop.family, drop.name): drop for drop in DROPS if drop.serious and drop.name != NAMES[INTERNAL_ERROR]
}


class DropReporter:
    """Reads the drop counters of ``daemon``, and logs how they have grown."""

    def __init__(self, daemon: DaemonState) -> None:
        self._daemon = daemon

    def start(self) -> None:
        """Take as logged what the daemon before has counted."""
        for family, where, counts in drop_counters(self._daemon):
            for name, total in counts.items():
                if family != "socket_drops":  # those were resumed as they were logged
                    log.repeats.resume((family, name, where), total)

    def report(self) -> None:
        """Log serious drops that were not logged yet; to be called every second and at the end."""
        for family, where, counts in drop_counters(self._daemon):
            if family in LOGGED_AT_SOURCE:
                continue
            for name, total in counts.items():
                drop = _REPORTED.get((family, name))
                if drop is not None and (count := log.repeats.growth((family, name, where), total)):
                    self._log_drop(drop, where, count, total)

    def _log_drop(self, drop: Drop, where: str, count: int, total: int) -> None:
        # The log ends each sentence itself.
        name, means, remedy = drop.name, drop.means.removesuffix("."), drop.remedy.removesuffix(".")
        if drop.family == "socket_drops":
            (segment,) = [one for one in self._daemon.segments if one.options.name == where]
            granted = segment.granted
            log.event(
                "kernel_drops",
                f"segment {where}: kernel dropped {count} datagrams: the receive buffer of {granted} bytes was full",
                remedy=f"raise receive_buffer of this segment to {2 * granted}, and ReceiveBuffer= of its socket unit; "
                "without root also net.core.rmem_max",
                segment=where,
                count=count,
                drop=name,
            )
            segment.logged_drops = total
        elif drop.family == "datagrams":
            log.event(
                "datagrams_refused",
                f"segment {where}: {count} datagrams refused ({name}). {means}",
                remedy=f"'bccn tap --refused' shows their senders and contents. {remedy}",
                segment=where,
                verdict=name,
                count=count,
                drop=name,
            )
        else:
            text = f"dropped {count} times since the last report ({name}). {means}"
            log.event("dropped", text, remedy=remedy, count=count, drop=name)


#: bytes of a datagram that are logged with an internal error
_MAX_LOGGED: Final = 2048


def report_internal_error(datagram: bytes) -> None:
    """Log the exception being handled, which a datagram caused."""
    text = f"a datagram was dropped because of a bug in this daemon: {datagram[:200]!r}"
    log.bug(text, verdict="internal_error", drop="internal_error", datagram=datagram[:_MAX_LOGGED])


def report_identity_conflict(src: bytes, peer: str) -> None:
    """Log that another host sends under an identity of this one."""
    log.event(
        "identity_conflict",
        f"identity conflict: {src.decode('ascii')} is a client of this host, and {peer} sends under the same name; "
        "its datagrams are dropped",
        about=("conflict", src),
        remedy="give every host its own 'host', and every program its own name",
        identity=src,
        peer=peer,
        drop="identity_conflicts",
    )
