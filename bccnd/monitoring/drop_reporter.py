"""What the daemon's log says about what was dropped.

Law: counters are looked at, and none is touched. What somebody should look at is said when it has grown, by its one
name; all of it waits for one line an hour, and one at the end.
"""

from __future__ import annotations

from typing import Final

from bccnd import log
from bccnd.core.drop_summary import DropSummary, in_fields, in_words
from bccnd.core.verdicts import INTERNAL_ERROR, NAMES
from bccnd.monitoring import drop_counts
from bccnd.monitoring.drop_entry import Drop
from bccnd.monitoring.metrics import Observed


class DropReporter:
    def __init__(self, daemon: Observed) -> None:
        self._daemon = daemon
        self._tally = DropSummary()
        self._told = False

    def watch(self) -> None:
        """Say what was dropped that somebody should look at, and what helps; the rest waits for the tally."""
        for one in drop_counts.serious(drop_counts.counted(self._daemon)):
            if one.drop.family in drop_counts.SAID_WHERE_IT_FALLS or one.drop.name == NAMES[INTERNAL_ERROR]:
                continue
            count = log.repeats.growth((one.drop.family, one.drop.name, one.where), one.count)
            if count:
                self._say(one.drop, one.where, count)

    def tell(self, since: str = "in the last hour") -> None:
        """Say in one line all that was dropped since that was last said, if anything was."""
        grown = self._tally.grown(drop_counts.rows(drop_counts.counted(self._daemon)))
        if grown:
            log.event("tally", f"dropped {since}: {in_words(grown)}", drops=in_fields(grown))
            self._told = True

    def end(self) -> None:
        """Say what is not said yet."""
        self.watch()
        self.tell("since that was last said" if self._told else "since the start")

    def _say(self, drop: Drop, where: str, count: int) -> None:
        name = drop.name
        if drop.family == "socket_drops":
            (granted,) = [one.granted for one in self._daemon.segments if one.options.name == where]
            log.event(
                "kernel_drops",
                f"segment {where}: the kernel dropped {count} datagrams because the receive buffer of "
                f"{granted} bytes was full",
                remedy=f"raise receive_buffer of this segment, say to {2 * granted}, and with it "
                "ReceiveBuffer= of its socket unit; or net.core.rmem_max, unless the daemon runs as root",
                segment=where,
                count=count,
                drop=name,
            )
        elif drop.family == "datagrams":
            log.event(
                "datagrams_refused",
                f"segment {where}: {count} datagrams were refused ({name}): each is {_within(drop.means)}",
                remedy="'bccn tap --refused' shows from where they come and what they claim to be; "
                f"{_within(drop.remedy)}",
                segment=where,
                verdict=name,
                count=count,
                drop=name,
            )
        else:
            text = f"dropped {count} times since that was last said ({name}): {_within(drop.means)}"
            log.event("dropped", text, remedy=_within(drop.remedy), count=count, drop=name)


def _within(sentence: str) -> str:
    """A sentence as a part of another one."""
    return f"{sentence[0].lower()}{sentence[1:]}".removesuffix(".")


#: bytes of a datagram that are logged with an internal error
_MAX_SHOWN: Final = 2048


def report_internal_error(datagram: bytes) -> None:
    """Log the exception that is being handled; a datagram has caused it."""
    text = f"a datagram was dropped because of a bug in this daemon: {datagram[:200]!r}"
    log.bug(text, verdict="internal_error", drop="internal_error", datagram=datagram[:_MAX_SHOWN])


def report_identity_conflict(src: bytes, peer: str) -> None:
    """Log that another host sends under an identity of this one."""
    log.event(
        "identity_conflict",
        f"identity conflict: {src.decode('ascii')} is a program of this host, and {peer} sends under the same name; "
        "datagrams that arrive under it are dropped",
        about=("conflict", src),
        remedy="give every host a 'host' of its own, and every program a name of its own",
        identity=src,
        peer=peer,
        drop="identity_conflicts",
    )
