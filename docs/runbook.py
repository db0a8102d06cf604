"""Writes the entries of docs/runbook.md about what is dropped, from bccnd/monitoring/drop_catalog.py.

What each drop means and its remedy stand in that catalogue. Where to look is written here: by the metric's family, and
for some names apart.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

from bccnd.monitoring.drop_catalog import DROPS, Drop
from bccnd.monitoring.page_gather import LOST
from docs.manual import wrapped

BEGIN: Final = "<!-- made by `make docs` of bccnd/monitoring/drop_catalog.py and docs/runbook.py: change these -->"
END: Final = "<!-- made: to here -->"

_VERDICT: Final = "`bccn tap -v {name}`: from which address, and what it claims to be"
_GATEWAY: Final = (
    "`bccn gateways`: which gateway, and which of its peers; `journalctl -u bccnd -u bccnd-nng -u bccnd-broker "
    "BCCND_DROP={name}`"
)
_FRAME: Final = (
    "`journalctl -u bccnd BCCND_DROP={name}` where it is said; the program's own log (it gets `!/bccn/error`)"
)
_QUEUE: Final = (
    "`bccn clients`: whose queue is long, and who has lost something; `journalctl -u bccnd BCCND_DROP={name}` for who "
    "it was before"
)
_NAMES: Final = "`bccn sources`: whose names are there, and how many"
_BUG: Final = "`journalctl -u bccnd BCCND_EVENT=internal_error -o verbose`"
#: where to look, by family
_FAMILIES: Final = {
    "datagrams": _VERDICT,
    "gateway_dropped": _GATEWAY,
    "client_errors": _FRAME,
    "deliveries_dropped": _QUEUE,
    "sources_forgotten": _NAMES,
    "heartbeats_unwatched": _NAMES,
    "clients_refused": "`journalctl -u bccnd BCCND_DROP={name}`: uid, pid and program; `bccn clients`",
    "visitors_refused": "`ss -tnp sport = :9540` (the port of metrics.listen): who is connected",
    "recorder_dropped_records": (
        "`journalctl -u bccnd-recorder BCCND_DROP={name}`; `df -h` for the disk of recorder.spool"
    ),
}
#: where to look, by name: instead of what its families have
_NAMED: Final = {
    "bug": _BUG,
    "client_ended": "`journalctl -u bccnd BCCND_EVENT=client_ended`",
    "client_gone": "`bccn clients`; the log of that program",
    "clients_not_kept": (
        "`journalctl -u bccnd BCCND_DROP=clients_not_kept`; `systemctl show bccnd -p NFileDescriptorStore`"
    ),
    "control_dropped": "`bccn clients`: whose queue is full",
    "copies_dropped": "`repeat` in `/etc/bccnd/bccnd.yaml`; `bccn top` for the busiest channels",
    "identity_conflicts": "`journalctl -u bccnd BCCND_DROP=identity_conflicts`: the name, and the other's address",
    "internal_error": _BUG,
    "late": "`bccn top`; `journalctl -u bccnd -u bccnd-nng BCCND_DROP=late`; whether this host was suspended",
    "lines_left_out": "`journalctl -u bccnd -p warning`: which event there are so many of",
    "lines_lost": "`systemctl status systemd-journald`, `journalctl --disk-usage`",
    "looped": "`bccnd_identity_conflicts_total`, or the same name on the status page",
    "messages_lost": "`bccn sources`: whose messages are missing; socket_drops of this host and of the others",
    "notifications_lost": "`systemctl is-system-running`; `journalctl -u bccnd BCCND_DROP=notifications_lost`",
    "pid_reused": "`journalctl -u bccnd BCCND_DROP=pid_reused`: uid, pid and program",
    "recorder_files_removed": "`recorder.keep` in `/etc/bccnd/bccnd.yaml`",
    "recorder_logs_removed": "`ls` of recorder.spool for `.log.bad`; `journalctl -k`, `smartctl -a`",
    "recorder_logs_set_aside": (
        "`journalctl -u bccnd-recorder BCCND_DROP=recorder_logs_set_aside`: the file; `journalctl -k`, `smartctl -a`"
    ),
    "recorder_logs_torn": "`journalctl -u bccnd-recorder`: why the one before has ended",
    "recorder_tap_gap_records": "`bccn clients`: the recorder's queue and losses; `top` for who has the processor",
    "send_errors": (
        "`journalctl -u bccnd BCCND_DROP=send_errors`, which names the kernel's error; `ip address`, `ip route`, "
        "`nft list ruleset`"
    ),
    "slow": (
        "`journalctl -u bccnd -u bccnd-nng -u bccnd-broker BCCND_DROP=slow`: who it was; `bccn clients`, "
        "`bccn gateways`"
    ),
    "socket_drops": (
        "`journalctl -u bccnd BCCND_DROP=socket_drops`, which names the segment and its buffer; `vmstat 1`; for the "
        "broker `ss -uamp`, whose last number is `d` with what was dropped"
    ),
    "sources_not_kept": "`journalctl -u bccnd BCCND_DROP=sources_not_kept`: the kernel's error",
    "stale": "`bccn tap -v stale`: of one source or of all",
    "state_dropped": "`journalctl -u bccnd -u bccnd-broker BCCND_DROP=state_dropped`: what it was",
}
#: of what a drop is, where several families have one of the same name
_OF: Final = {
    "datagrams": "a datagram",
    "client_errors": "a program's frame",
    "clients_refused": "a program",
    "clients_ended": "a program",
    "visitors_refused": "the metrics listener",
    "gateway_dropped": "a gateway",
    "socket_drops": "a segment",
    "state_dropped": "the daemon",
}


def _means(drop: Drop, *, alone: bool) -> str:
    label = f'{{{drop.label}="{drop.name}"}}' if drop.label else ""
    of = "" if alone else f"{_OF[drop.family]}, "
    return f"*Means* ({of}`bccnd_{drop.family}_total{label}`{'' if drop.serious else ', usual'}): {drop.means}"


def _entry(name: str, drops: list[Drop]) -> str:
    looks = [_NAMED[name]] if name in _NAMED else list(dict.fromkeys(_FAMILIES[drop.family] for drop in drops))
    remedies = list(dict.fromkeys(drop.remedy for drop in drops))
    if len(remedies) > 1:
        remedies = [f"({_OF[drop.family]}) {drop.remedy}" for drop in drops]
    paragraphs = [_means(drop, alone=len(drops) == 1) for drop in drops]
    paragraphs += [f"*Look at:* {'; '.join(looks).format(name=name)}.", f"*Do:* {' '.join(remedies)}"]
    return "\n\n".join((f"### {name}", *map(wrapped, paragraphs)))


def entries() -> str:
    """One entry for each name, in the order of the alphabet."""
    known = sorted((*DROPS, LOST), key=lambda drop: drop.name)
    return "\n\n".join(_entry(name, list(drops)) for name, drops in groupby(known, key=lambda drop: drop.name))


def filled(text: str) -> str:
    """The runbook with the entries as they are now."""
    before, _, rest = text.partition(BEGIN)
    _, found, behind = rest.partition(END)
    if not found:
        raise ValueError("docs/runbook.md has no place for what is dropped")
    return f"{before}{BEGIN}\n\n{entries()}\n\n{END}{behind}"
