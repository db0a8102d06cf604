"""Metrics: documented names, bounded labels, and the values of the parts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import cast

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_plain

from bccnd.core.observing.counters import DROP_REASONS, END_REASONS, ERROR_REASONS, HOLD_REASONS, REFUSE_REASONS
from bccnd.core.observing.latency_histogram import LATENCY_BOUNDS
from bccnd.core.tracking.liveness import HeartbeatRules
from bccnd.core.wire.verdicts import NAMES
from bccnd.drop_catalog.drops import GATEWAY_REASONS
from bccnd.gateways import NAMES as GATEWAYS
from bccnd.gateways.status import GatewayStatus
from bccnd.monitoring import metrics
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.service_status import ServiceStatus
from bccnd.snapshot import GatewayPeerState
from bccnd.version import VERSION
from tests.monitoring.pages import HOSTILE, Observed

#: counters with a reason, and their reasons
REASONS = {
    "deliveries_dropped_total": DROP_REASONS,
    "clients_refused_total": REFUSE_REASONS,
    "clients_ended_total": END_REASONS,
    "publishers_held_total": HOLD_REASONS,
}
#: what a label may be called
LABELS = {
    *("key", "segment", "verdict", "reason", "error", "group"),
    *("cause", "result", "le", "version", "gateway", "direction"),
}


def reading(observed: Observed) -> Callable[..., float]:
    """The values of one exposition, by name and labels."""
    found = observed.samples()
    return lambda name, **labels: found[name, frozenset(labels.items())]


def test_the_pages_are_understood_by_the_parsers_of_their_kinds(busy: Observed) -> None:
    for accept in ("", "text/plain", "application/openmetrics-text; version=1.0.0"):
        status, kind, text = busy.page("/metrics", accept)
        assert status == 200
        strict = kind.startswith("application/openmetrics-text")
        assert strict == accept.startswith("application/openmetrics-text")
        families = list((read_openmetrics if strict else read_plain)(text))
        assert any(family.name == "bccnd_datagrams" for family in families)
    assert busy.page("/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
    assert set(metrics.pages(cast(DaemonState, busy))) == {"/metrics", "/healthz"}


def test_no_label_comes_from_the_network_or_from_a_client(observed: Observed) -> None:
    before = set(observed.samples())
    assert {name for _, pairs in before for name, _ in pairs} <= LABELS
    # Hundreds of sources, and clients with patterns, keys and faults of their own choice, add no series.
    for number in range(500):
        observed.sources.judge_new(b"flood/%d" % number, 1, 1000.0)
        observed.anonymous.judge(f"127.0.0.1:{number}", b"?", 1000.0)
    client = observed.hub.connect()
    for number in range(50):
        client.publish(b"flood %d" % number, b"x")
        client.publish(b"flood/%d" % number, b"x")
        client.send(b"SUB flood/%d/" % number, b"CMSG !/flood/%d" % number, b"FLOOD%d" % number, b"UNSUB %d" % number)
    client.all()
    assert set(observed.samples()) == before
    value = reading(observed)
    reasons = {reason for reason in ERROR_REASONS if value("client_errors_total", reason=reason)}
    assert reasons == {"bad_channel", "unknown_verb", "unknown_control", "not_subscribed"}


def test_the_numbers_are_those_of_the_parts(busy: Observed) -> None:
    value = reading(busy)
    for number, name in enumerate(NAMES):
        assert value("datagrams_total", segment="here", verdict=name) == number + 1
    found = {dict(pairs).get("segment") for name, pairs in busy.samples() if name == "datagrams_total"}
    assert found == {"here", HOSTILE, "nng"}
    for segment, count in {"here": sum(range(1, len(NAMES) + 1)), HOSTILE: 0}.items():
        assert value("datagrams_received_total", segment=segment) == count
        assert sum(value("datagrams_total", segment=segment, verdict=name) for name in NAMES) == count
    # test_drop_counts.py compares what is counted of drops.
    expected: list[tuple[float, str, dict[str, str]]] = [
        (1, "datagrams_sent_total", {"segment": "here"}),
        (2, "sources", {}),
        (1, "sources_alive", {}),
        (2, "messages_missing", {}),
        (0, "source_restarts_total", {}),
        (3, "clients", {}),
        (2, "subscriptions", {}),
        (3, "published_total", {}),
        (2, "deliveries_total", {}),
        (3, "channel_messages_total", {"group": "cardsys"}),
        (300, "channel_bytes_total", {"group": "cardsys"}),
        (12, "key_verified_total", {"key": "00112233aabbccdd"}),
        (2, "config_reloads_total", {"result": "refused"}),
        (3, "clients_taken_over", {}),
        (1, "build_info", {"version": VERSION}),
    ]
    assert [(value(name, **labels), name, labels) for _, name, labels in expected] == expected
    # What is missing becomes lost in time.
    busy.sources.sweep(1010.0)
    value = reading(busy)
    assert (value("messages_missing"), value("messages_lost_total")) == (0, 2)


def test_the_histogram_is_cumulative_and_complete(busy: Observed) -> None:
    buckets = {
        float(dict(pairs)["le"]): value
        for (name, pairs), value in busy.samples().items()
        if name == "forward_seconds_bucket"
    }
    assert sorted(buckets) == [*LATENCY_BOUNDS, float("inf")]
    assert [buckets[bound] for bound in sorted(buckets)] == [0.0] + [1.0] * (len(LATENCY_BOUNDS) - 1) + [2.0]
    assert busy.value("forward_seconds_count") == 2
    assert busy.value("forward_seconds_sum") == pytest.approx(9.00003)


def test_every_series_is_there_from_the_beginning(observed: Observed) -> None:
    value = reading(observed)
    for name, reasons in REASONS.items():
        for reason in reasons:
            assert value(name, reason=reason) == 0
    assert {value("datagrams_total", segment=place, verdict=name) for place in ("here", "nng") for name in NAMES} == {0}
    for gateway in GATEWAYS:
        for name in ("gateway_up", "gateway_peers", "gateway_starts_total"):
            assert value(name, gateway=gateway) == 0
    for cause in ("expired", "evicted", "nameless_evicted"):
        assert value("sources_forgotten_total", cause=cause) == 0
    for name in ("sources_silent", "source_deaths_total", "identity_conflicts_total", "copies_dropped_total"):
        assert value(name) == 0


def test_the_report_of_a_gateway_is_shown_while_it_is_connected(observed: Observed) -> None:
    counts = {f"gateway_{name}_total" for name in ("connects", "messages", "bytes", "dropped")}
    # A service of its own outlives the daemon: a zero before its first report would be taken for a reset.
    assert not counts & {name for name, _ in observed.samples()}
    peers = [GatewayPeerState("10.0.0.2:5410", "tcp://b:5410")]
    teller = observed.hub.connect()
    assert observed.links.report(
        teller.client, GatewayStatus("nng", peers, 5, 500, 7, 700, 2, {"queue_full": 3}).report()
    )
    observed.links.late = 4
    value = reading(observed)
    assert (value("gateway_up", gateway="nng"), value("gateway_peers", gateway="nng")) == (1, 1)
    assert value("gateway_connects_total", gateway="nng") == 2
    for direction, messages in (("in", 5), ("out", 7)):
        assert value("gateway_messages_total", gateway="nng", direction=direction) == messages
        assert value("gateway_bytes_total", gateway="nng", direction=direction) == 100 * messages
    dropped = {reason: value("gateway_dropped_total", gateway="nng", reason=reason) for reason in GATEWAY_REASONS}
    assert {reason: count for reason, count in dropped.items() if count} == {"queue_full": 3, "late": 4}
    assert value("gateway_up", gateway="broker") == 0
    teller.close()
    observed.hub.settle()
    value = reading(observed)
    assert (value("gateway_up", gateway="nng"), value("gateway_peers", gateway="nng")) == (0, 0)
    assert value("gateway_messages_total", gateway="nng", direction="in") == 5


def test_silent_and_dead_sources_are_counted(observed: Observed) -> None:
    for src in (b"a", b"b"):
        observed.sources.judge_new(src, 1, 0.0)
        observed.liveness.on_heartbeat(src, 0.0)
    names = ("sources_silent", "source_deaths_total", "sources")
    seen = []
    for now in range(20):
        observed.liveness.sweep(float(now))
        seen.append([observed.value(name) for name in names])
    # Silent after 7.5 s, dead after 17.5; the dead are no longer tracked, which is an end like any other.
    assert [state for state, _ in groupby(seen)] == [[0, 0, 2], [2, 0, 2], [0, 2, 0]]
    assert observed.value("sources_forgotten_total", cause="expired") == 2


def test_a_source_is_alive_within_its_intervals(observed: Observed) -> None:
    observed.sources.judge_new(b"old", 1, 970.0)
    observed.sources.judge_new(b"young", 1, 986.0)
    assert observed.value("sources_alive") == 1  # within 3 times 5 s before 1000
    observed.liveness.rules = HeartbeatRules(interval=10.0, dead_after=3)
    assert observed.value("sources_alive") == 2
    observed.liveness.rules = HeartbeatRules(interval=10.0, dead_after=1)
    assert observed.value("sources_alive") == 0


def test_the_last_reload_and_the_stalls_of_the_loop_are_shown(observed: Observed) -> None:
    names = ("config_last_reload_successful", "loop_stalled_seconds_total", "loop_stall_seconds")
    assert [observed.value(name) for name in names] == [1, 0, 0]
    observed.refused = "no such key"
    assert ServiceStatus(cast(DaemonState, observed)).line() == observed.refused
    observed.loop_lag.observe(997.0, 0.25)
    assert [observed.value(name) for name in names] == [0, 0, 2.75]  # it still stands still
    observed.loop_lag.observe(1000.0, 0.25)
    assert [observed.value(name) for name in names] == [0, 2.75, 2.75]
