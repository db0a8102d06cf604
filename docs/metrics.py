"""docs/metrics.md, made from the metrics of daemon and recorder, the catalog of drops and the rules for alerts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.core import Metric

from bccnd.bus.requests.recorder_reports import RECORDED
from bccnd.core.observing.counters import (
    DROP_REASONS,
    END_REASONS,
    ERROR_REASONS,
    HOLD_REASONS,
    REFUSE_REASONS,
)
from bccnd.core.observing.latency_histogram import LatencyHistogram
from bccnd.core.wire.verdicts import NAMES as VERDICTS
from bccnd.drop_catalog.drops import DROPS, LOST
from bccnd.drop_catalog.entry import PREFIX
from bccnd.fleet.report_format import REASONS
from bccnd.monitoring.metrics import families
from bccnd.recorder.metrics import Figures
from bccnd.snapshot import Latency, Snapshot
from docs.manual import wrapped

_RULES: Final = Path(__file__).parents[1] / "etc/prometheus/bccnd.rules.yml"
_HEAD: Final = """# Metrics

Each metric, and what to do if a counter (`_total`) rises, or if a gauge is not as it should be: an alert, a kind of
drop, or a sentence. Alerts and drops have their entries in the [runbook](runbook.md).

- Counters start at zero with each process, so query them with `rate` and `increase`. Only `bccnd_socket_drops_total`
  is the kernel's, and continues where a socket unit keeps the socket.
- `bccnd_crashes_total` and `bccnd_state_dropped_total` are counted at the start, so `increase` does not show them. [The
  rules](monitoring.md) compare them with zero for an hour after a start.
- Labels, in braces, have few values; names of senders, channels and programs are never among them.
- `segment` is the `name` of a segment in the configuration, or `<interface>/<address>#<port>` without one. Datagrams
  that a link brings have `segment="nng"`.

The daemon's HTTP listener (`metrics.listen`, by default `127.0.0.1:9540`) serves `/metrics`, `/healthz` (`ok`,
answered by the daemon's event loop), `/`, the [status page](status-page.md), and `/fleet`, [the fleet](fleet.md), with
`/status.json` and `/fleet.json` for programs. `/runbook` is the [runbook](runbook.md)."""
#: of a measure of traffic
_NOTHING: Final = ""
#: what to do, for families that are neither drops nor in the condition of an alert, or only as its basis
_ACTIONS: Final = {
    "datagrams_received": "If it stops, see [BccndHearsNothing](runbook.md#bccndhearsnothing).",
    "datagrams": "See the [verdict](#values-of-labels).",
    "datagrams_sent": _NOTHING,
    "segment_reopened": "Nothing, if the interface was configured anew. If it keeps rising, find what removes the "
    "interface: `journalctl -k`.",
    "sources": "Compare it with `dedup.max_sources`; see [BccndTooManySources](runbook.md#bccndtoomanysources).",
    "sources_alive": "If it falls, look at the sources with `bccn sources`.",
    "messages_missing": "Nothing, if it falls again. What stays missing is counted as lost.",
    "source_restarts": "Nothing, if programs were restarted. Else find the source with `bccn tap -v restart`.",
    "source_jumps": "Find the source with `bccn sources`: its program skips sequence numbers, or two share a name.",
    "clients": "Compare it with `bus.max_clients`.",
    "subscriptions": "Compare it with `bus.max_subscriptions` and `bus.user.subscriptions`.",
    "deliveries": _NOTHING,
    "published": _NOTHING,
    "publishers_held": "`rate`: the user exceeds `bus.user.rate`. `slow_reader`: find the slow client with "
    "`bccn clients`; it has chosen a blocking mode.",
    "gateway_peers": "If it falls, see [BccndLinkPeers](runbook.md#bccndlinkpeers).",
    "gateway_connects": "If it keeps rising, a link is unstable: `bccn gateways` shows the peers.",
    "gateway_messages": _NOTHING,
    "gateway_bytes": _NOTHING,
    "channel_messages": _NOTHING,
    "channel_bytes": _NOTHING,
    "key_verified": "While keys are changed: the old key's counter must stop ([keys](operations.md#changing-keys)).",
    "config_reloads": "`refused`: see [BccndReloadRefused](runbook.md#bccndreloadrefused).",
    "fleet_hosts": "If it falls, see which hosts are silent: `bccn fleet`.",
    "fleet_hosts_silent": "`bccn fleet` names them: they are down, or cut off from this host.",
    "reports_sent": _NOTHING,
    "reports_received": "If it stops while others report, see [BccndHearsNothing](runbook.md#bccndhearsnothing).",
    "reported_messages": _NOTHING,
    "reported_lost": "`bccn fleet --sent` shows which hosts lose this host's messages.",
    "clients_taken_over": "Nothing: clients that stayed connected across the last restart.",
    "build": "Compare the versions of hosts during an upgrade.",
    "recorder_records": "If it stops, see [BccndRecorderIdle](runbook.md#bccndrecorderidle).",
    "recorder_journal_records": _NOTHING,
    "recorder_journal_bytes": "Compare it with `recorder.keep.size` and the disk.",
    "recorder_files": _NOTHING,
    "recorder_logs_recovered": "Nothing: what an earlier recorder had left is in the journal now.",
    "recorder_visitors_refused": "Look up the [reason](#values-of-labels); the listener is `recorder.metrics.listen`.",
    "recorder_build": "Compare it with the daemon's version.",
    "recorder_spool_bytes": "Compare it with the next row; see [BccndRecorderBehind](runbook.md#bccndrecorderbehind).",
    "recorder_spool_limit_bytes": "Nothing: it is `recorder.spool_size`.",
    "recorder_clock_doubted": "Run a time service: [retention](recorder.md#retention).",
    "recorder_logs_waiting": "See [BccndRecorderBehind](runbook.md#bccndrecorderbehind).",
}
#: meanings that depend on the configuration of a daemon
_MEANINGS: Final = {
    "sources_alive": "Sources that sent a datagram within `heartbeat.dead_after` intervals of `heartbeat.interval`, "
    "or of 5 s where that is 0",
}


class _Zero(int):
    """Stands for any part of a process that has done nothing yet: zero, empty, and so are its attributes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Zero()

    def __call__(self, *_arguments: Any) -> Any:
        return _Zero()

    def __getitem__(self, _key: Any) -> Any:
        return _Zero()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _families() -> Iterator[Metric]:
    """Yield the families of a daemon and of a recorder that have done nothing yet."""
    recorder: Any = _Zero()
    yield from families(Snapshot(forward=Latency(LatencyHistogram().buckets)))
    yield from Figures(recorder).collect()


def alerts_by_metric() -> dict[str, list[str]]:
    """Return the alerts whose condition names a metric, by the metric, also where it does so by a recorded rule."""
    rules = [rule for group in yaml.safe_load(_RULES.read_text())["groups"] for rule in group["rules"]]
    recorded = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}

    def metrics(expression: str) -> Iterator[str]:
        for word in re.findall(r"[a-z_]+:[\w:]+|bccnd_\w+", expression):
            if word in recorded:
                yield from metrics(recorded[word])
            else:
                yield re.sub(r"_(total|bucket|info)$", "", word)

    found: dict[str, list[str]] = {}
    for rule in rules:
        for metric in dict.fromkeys(metrics(rule["expr"]) if "alert" in rule else ()):
            alerts = found.setdefault(metric, [])
            if rule["alert"] not in alerts:
                alerts.append(rule["alert"])
    return found


def _link(name: str, *, code: bool = False) -> str:
    shown = f"`{name}`" if code else name
    return f"[{shown}](runbook.md#{name.lower()})"


def _what_to_do(family: str, alerts: dict[str, list[str]]) -> str:
    if family in _ACTIONS:
        return _ACTIONS[family]
    drops = [drop for drop in (*DROPS, LOST) if drop.family == family]
    listed = ", ".join(map(_link, alerts.get(PREFIX + family, ())))
    parts = [f"{listed}."] if listed else []
    if len(drops) == 1 and not drops[0].label:
        if not listed:
            parts.append(f"See {_link(drops[0].name, code=True)}.")
    elif drops:
        (label,) = {drop.label for drop in drops}
        parts.append(f"See the [{label}](#values-of-labels).")
    if not parts:
        raise ValueError(f"say in _ACTIONS what to do about {PREFIX}{family}")
    return " ".join(parts)


def _row(metric: Metric, alerts: dict[str, list[str]]) -> str:
    family = metric.name.removeprefix(PREFIX)
    ending, labels = {"counter": "_total", "info": "_info"}.get(metric.type, ""), getattr(metric, "_labelnames", ())
    if metric.type == "info":
        labels = ("version",)
    text = _MEANINGS.get(family, metric.documentation).rstrip(".")
    listed = f"{{{','.join(labels)}}}" if labels else ""
    item = f"- `{metric.name}{ending}{listed}`: {text}. {_what_to_do(family, alerts)}"
    return wrapped(item.rstrip()).replace("\n", "\n  ")


def _values() -> Iterator[str]:
    """Yield a row for each label with a fixed list of values; drops with links to their entries."""
    entries = {(drop.family, drop.name) for drop in DROPS}
    recorded = [name for family, name in RECORDED if family == "recorder_dropped_records"]
    for family, label, values in (
        ("datagrams", "verdict", VERDICTS),
        ("sources_forgotten", "cause", _of("sources_forgotten")),
        ("deliveries_dropped", "reason", DROP_REASONS),
        ("publishers_held", "reason", HOLD_REASONS),
        ("clients_refused", "reason", REFUSE_REASONS),
        ("clients_ended", "reason", END_REASONS),
        ("client_errors", "reason", ERROR_REASONS),
        ("visitors_refused", "reason", _of("visitors_refused")),
        ("log_lines_dropped", "reason", _of("log_lines_dropped")),
        ("gateway_messages", "direction", ("in", "out")),
        ("gateway_dropped", "reason", _of("gateway_dropped")),
        ("config_reloads", "result", ("applied", "refused")),
        ("reports_refused", "reason", REASONS),
        ("reported_messages", "direction", ("sent", "received")),
        ("reported_lost", "direction", ("sent", "received")),
        ("recorder_dropped_records", "reason", recorded),
    ):
        shown = (_link(one, code=True) if (family, one) in entries else f"`{one}`" for one in values)
        yield wrapped(f"- `{label}` of `{PREFIX}{family}_total`: {', '.join(shown)}").replace("\n", "\n  ")


def _of(family: str) -> Iterable[str]:
    return [drop.name for drop in DROPS if drop.family == family]


def page() -> str:
    """Generate the document. Raises ValueError for a metric without a word on what to do."""
    alerts = alerts_by_metric()
    found = list(_families())
    recorder = [metric for metric in found if metric.name.startswith(f"{PREFIX}recorder_")]
    daemon = [metric for metric in found if metric not in recorder]
    rows = "\n".join(_row(metric, alerts) for metric in daemon)
    recorded = "\n".join(_row(metric, alerts) for metric in recorder)
    accepted = "`accepted`, `reordered` and `restart`"
    return (
        "\n\n".join(
            (
                _HEAD,
                f"## The daemon\n\n{rows}",
                "## The recorder",
                "The recorder has a listener of its own, off until `recorder.metrics.listen` is set.",
                recorded,
                "## Values of labels\n\n"
                "Every datagram that is read gets exactly one verdict. Datagrams with the verdicts\n"
                f"{accepted} are delivered, all others are dropped. A linked value has an entry in\n"
                "the runbook.\n\n" + "\n".join(_values()),
            )
        )
        + "\n"
    )
