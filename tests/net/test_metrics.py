"""What Prometheus and people see: the promised names, labels of a bounded set, numbers that are those of the parts."""

from __future__ import annotations

import socket
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_plain

from bccnd.core import frames, repeat
from bccnd.core.counters import (
    DROP_REASONS,
    END_REASONS,
    ERROR_REASONS,
    HOLD_REASONS,
    LATENCY_BOUNDS,
    REFUSE_REASONS,
)
from bccnd.core.liveness import LivenessRules
from bccnd.core.patterns import DIALECTS
from bccnd.core.repeat import RepeatRule
from bccnd.core.verdicts import NAMES
from bccnd.gateways.names import NAMES as GATEWAYS
from bccnd.gateways.names import REASONS as GATEWAY_REASONS
from bccnd.gateways.report import Peer as GatewayPeer
from bccnd.gateways.report import Status
from bccnd.net import metrics
from bccnd.net.access import Access
from bccnd.net.clients import BusLimits
from bccnd.version import VERSION
from tests.net.pages import HOSTILE, Observed

#: the families that the README promises, and their labels
PROMISED = {
    "datagrams_received_total": {"segment"},
    "datagrams_total": {"segment", "verdict"},
    "messages_missing": set(),
    "messages_lost_total": set(),
    "source_restarts_total": set(),
    "socket_drops_total": {"segment"},
    "datagrams_sent_total": {"segment"},
    "send_errors_total": {"segment", "error"},
    "deliveries_total": set(),
    "deliveries_dropped_total": {"reason"},
    "clients_refused_total": {"reason"},
    "clients_ended_total": {"reason"},
    "publishers_held_total": {"reason"},
    "control_dropped_total": set(),
    "clients": set(),
    "subscriptions": set(),
    "sources": set(),
    "sources_alive": set(),
    "queue_bytes": set(),
    "forward_seconds_bucket": {"le"},
    "forward_seconds_sum": set(),
    "forward_seconds_count": set(),
    "build_info": {"version"},
    "config_last_reload_successful": set(),
    "loop_stalled_seconds_total": set(),
    "loop_stall_seconds": set(),
    "clock_seconds": set(),
    "gateway_up": {"gateway"},
    "gateway_peers": {"gateway"},
    "gateway_connects_total": {"gateway"},
    "gateway_messages_total": {"gateway", "direction"},
    "gateway_bytes_total": {"gateway", "direction"},
    "gateway_dropped_total": {"gateway", "reason"},
    "gateway_starts_total": {"gateway"},
}
#: and what they are counted by, from the beginning
REASONS = {
    "deliveries_dropped_total": DROP_REASONS,
    "clients_refused_total": REFUSE_REASONS,
    "clients_ended_total": END_REASONS,
    "publishers_held_total": HOLD_REASONS,
}
#: what a label may be called
LABELS = {"segment", "verdict", "reason", "error", "group", "cause", "result", "le", "version", "gateway", "direction"}


def test_every_promised_name_is_there_with_its_labels(busy: Observed) -> None:
    found = busy.samples()
    for name, labels in PROMISED.items():
        seen = [dict(pairs) for series, pairs in found if series == name]
        assert seen, f"{name} is missing"
        assert all(set(one) == labels for one in seen), name


@pytest.mark.parametrize("accept", ["", "text/plain", "application/openmetrics-text; version=1.0.0"])
def test_the_exposition_is_understood_by_the_parser_of_its_kind(busy: Observed, accept: str) -> None:
    status, kind, text = busy.page("/metrics", accept)
    assert status == 200
    strict = kind.startswith("application/openmetrics-text")
    assert strict == accept.startswith("application/openmetrics-text")
    families = list((read_openmetrics if strict else read_plain)(text))
    assert any(family.name == "bccnd_datagrams" for family in families)


def test_counters_end_in_total_and_nothing_else_does(busy: Observed) -> None:
    for family in busy.families().values():
        if family.name.startswith(metrics.PREFIX):
            for sample in family.samples:
                assert sample.name.endswith("_total") == (family.type == "counter"), sample.name


def test_every_family_is_explained_and_ours_carry_the_prefix(busy: Observed) -> None:
    for family in busy.families().values():
        assert family.name.startswith((metrics.PREFIX, "process_")), family.name
        assert family.documentation, family.name


def test_no_label_comes_from_the_network_or_from_a_client(busy: Observed) -> None:
    before = set(busy.samples())
    assert {name for _, pairs in before for name, _ in pairs} <= LABELS
    # Hundreds of sources, and clients with patterns, keys and faults of their own choice, add no series.
    for number in range(500):
        busy.sources.begin(b"flood/%d" % number, 1, 1000.0)
        busy.nameless.judge(f"127.0.0.1:{number}", b"?", 1000.0)
    peer = next(one for one in busy.hub._peers if hasattr(one, "client"))
    for number in range(50):
        peer.publish(b"flood %d" % number, b"x")
        peer.publish(b"flood/%d" % number, b"x")
        peer.send(b"SUB flood/%d/" % number, b"CMSG !/flood/%d" % number, b"FLOOD%d" % number, b"UNSUB not/%d" % number)
    peer.all()
    after = set(busy.samples())
    assert after == before
    errors = {reason: busy.value("client_errors_total", reason=reason) for reason in ERROR_REASONS}
    assert len(errors) == sum(name == "client_errors_total" for name, _ in after)
    reasons = {reason for reason, count in errors.items() if count}
    assert reasons == {"bad_channel", "unknown_verb", "not_permitted", "unknown_control", "not_subscribed"}


def test_the_numbers_are_those_of_the_parts(busy: Observed) -> None:
    value = busy.value
    for number, name in enumerate(NAMES):
        assert value("datagrams_total", segment="here", verdict=name) == number + 1
    assert value("datagrams_received_total", segment="here") == sum(range(1, len(NAMES) + 1))
    assert value("datagrams_received_total", segment=HOSTILE) == 0
    assert value("datagrams_sent_total", segment="here") == 1
    assert value("send_errors_total", segment="here", error="EMSGSIZE") == 1
    assert value("socket_drops_total", segment="here") == 0
    assert value("sources") == 2
    assert value("sources_alive") == 1
    assert value("messages_missing") == 2
    assert value("messages_lost_total") == 0
    assert value("source_restarts_total") == 0
    assert value("clients") == 3
    assert value("clients_refused_total", reason="too_many_clients") == 1
    assert value("subscriptions") == 2
    assert value("published_total") == 3
    assert value("deliveries_total") == 2
    assert value("deliveries_dropped_total", reason="too_big") == 1
    assert value("client_errors_total", reason="bad_channel") == 1
    assert value("queue_bytes") == 0
    assert value("channel_messages_total", group="cardsys") == 3
    assert value("channel_bytes_total", group="cardsys") == 300
    assert value("config_reloads_total", result="refused") == 2
    assert value("clients_taken_over") == 3
    assert value("state_dropped_total") == 4
    assert value("clients_not_kept_total") == 5
    assert value("visitors_refused_total", reason="bad_request") == 7
    assert value("notifications_lost_total") == 8
    assert value("sources_not_kept_total") == 9
    assert value("log_lines_dropped_total", reason="lines_left_out") >= 0
    assert value("build_info", version=VERSION) == 1


def test_what_was_missing_becomes_lost_and_is_counted_once(busy: Observed) -> None:
    busy.sources.sweep(1010.0)
    assert busy.value("messages_missing") == 0
    assert busy.value("messages_lost_total") == 2


def test_the_sum_over_verdicts_is_the_number_read(busy: Observed) -> None:
    found = busy.samples()
    for segment in ("here", HOSTILE):
        judged = sum(
            value
            for (name, pairs), value in found.items()
            if name == "datagrams_total" and ("segment", segment) in pairs
        )
        assert judged == busy.value("datagrams_received_total", segment=segment)


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


def test_what_waits_for_a_slow_client_is_shown(observed: Observed) -> None:
    slow = observed.hub.connect(b"x")
    observed.bus.deliver([((slow.client.fd,), b"MSG x\0" + b"y" * 1000)] * 1000)
    assert slow.client.box.bytes > 0
    assert observed.value("queue_bytes") == slow.client.box.bytes


def test_a_daemon_that_has_just_started_shows_every_series_that_it_can(observed: Observed) -> None:
    for name, reasons in REASONS.items():
        for reason in reasons:
            assert observed.value(name, reason=reason) == 0
    for name in NAMES:
        assert observed.value("datagrams_total", segment="here", verdict=name) == 0


def test_a_gateway_that_is_configured_is_shown_before_it_has_told_anything(observed: Observed) -> None:
    for name in GATEWAYS:
        assert observed.value("gateway_up", gateway=name) == observed.value("gateway_peers", gateway=name) == 0
        assert observed.value("gateway_starts_total", gateway=name) == 0
        for reason in GATEWAY_REASONS:
            assert observed.value("gateway_dropped_total", gateway=name, reason=reason) == 0
    for verdict in NAMES:
        assert observed.value("datagrams_total", segment="nng", verdict=verdict) == 0


def test_what_a_gateway_tells_is_shown_for_as_long_as_it_is_there(observed: Observed) -> None:
    told = Status("nng", [GatewayPeer("10.0.0.2:5410", "tcp://b:5410")], 5, 500, 7, 700, 2, {"queue_full": 3})
    teller = observed.hub.connect()
    assert observed.links.report(teller.client, told.report())
    observed.links.late = 4
    value = observed.value
    assert (value("gateway_up", gateway="nng"), value("gateway_peers", gateway="nng")) == (1, 1)
    assert value("gateway_connects_total", gateway="nng") == 2
    assert value("gateway_messages_total", gateway="nng", direction="in") == 5
    assert value("gateway_messages_total", gateway="nng", direction="out") == 7
    assert value("gateway_bytes_total", gateway="nng", direction="in") == 500
    assert value("gateway_bytes_total", gateway="nng", direction="out") == 700
    assert value("gateway_dropped_total", gateway="nng", reason="queue_full") == 3
    assert value("gateway_dropped_total", gateway="nng", reason="late") == 4
    assert value("gateway_up", gateway="broker") == 0
    teller.close()
    observed.hub.settle()
    assert (value("gateway_up", gateway="nng"), value("gateway_peers", gateway="nng")) == (0, 0)
    assert value("gateway_messages_total", gateway="nng", direction="in") == 5


def test_control_messages_for_which_there_was_no_room_are_counted(observed: Observed) -> None:
    observed.bus.configure(BusLimits(queue_messages=1), Access((), DIALECTS["path"], 0, 0))
    slow = observed.hub.connect()
    slow.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    slow.send(*[frames.request(frames.SYNC, b"x" * 1000)] * 50)
    observed.hub.settle()
    assert observed.value("control_dropped_total") > 0
    told = len(slow.all())
    assert told + observed.value("control_dropped_total") == 50


def test_a_hostile_name_stays_a_label(busy: Observed) -> None:
    found = {dict(pairs).get("segment") for name, pairs in busy.samples() if name == "datagrams_total"}
    assert found == {"here", HOSTILE, "nng"}


def test_the_health_page_says_ok(observed: Observed) -> None:
    assert observed.page("/healthz") == (200, "text/plain; charset=utf-8", "ok\n")


def test_there_are_no_other_pages(observed: Observed) -> None:
    assert set(metrics.pages(observed)) == {"/metrics", "/healthz"}


# -- liveness, repeats, conflicts


def test_who_is_silent_and_who_has_died_is_counted(observed: Observed) -> None:
    for src in (b"a", b"b", b"c"):
        observed.sources.begin(src, 1, 0.0)
        observed.liveness.beat(src, 0.0)
    assert (observed.value("sources_silent"), observed.value("source_deaths_total")) == (0, 0)
    seen = []
    for quarter in range(1, 73):
        now = quarter / 4
        if now == 7.0:
            observed.sources.judge(b"c", 2, now)
            observed.liveness.beat(b"c", now)
        observed.liveness.sweep(now)
        seen.append(tuple(observed.value(name) for name in ("sources_silent", "source_deaths_total", "sources")))
    # Silent after 7.5 s, dead after 17.5; the dead are no longer tracked, which is an end like any other.
    assert [seen[29], seen[30], seen[-1]] == [(0, 0, 3), (2, 0, 3), (1, 2, 1)]
    assert observed.value("sources_forgotten_total", cause="expired") == 2


def test_whose_heartbeats_there_was_no_room_to_watch_is_counted(observed: Observed) -> None:
    observed.liveness.configure(LivenessRules(max_watched=1))
    for src in (b"a", b"b", b"c"):
        observed.sources.begin(src, 1, 0.0)
        observed.liveness.beat(src, 0.0)
    assert observed.value("heartbeats_unwatched_total") == 2


def test_who_is_alive_is_who_was_heard_within_the_intervals_that_mean_death(observed: Observed) -> None:
    observed.sources.begin(b"old", 1, 970.0)
    observed.sources.begin(b"young", 1, 986.0)
    assert observed.value("sources_alive") == 1  # within 3 times 5 s before 1000
    observed.liveness.configure(LivenessRules(interval=10.0, dead_after=3))
    assert observed.value("sources_alive") == 2
    assert "30 s" in observed.families()["bccnd_sources_alive"].documentation
    observed.liveness.configure(LivenessRules(interval=10.0, dead_after=1))
    assert observed.value("sources_alive") == 0


def test_conflicts_of_identity_are_counted_each_time(observed: Observed) -> None:
    observed.sources.claim(b"own/p/1")
    assert observed.value("identity_conflicts_total") == 0
    for seq in (1, 2, 2):
        observed.sources.conflict(b"own/p/1", seq)
    assert observed.value("identity_conflicts_total") == 3


def test_copies_for_which_there_was_no_room_are_counted(observed: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat, "MAX_WAITING", 2)
    observed.repeater.configure([RepeatRule(b"a", 4, 1.0)], DIALECTS["path"], 2.0)
    for _ in range(3):
        observed.repeater.add(b"a", b"x", 0.0)
    assert observed.value("copies_dropped_total") == 3


@pytest.mark.parametrize("cause", ["expired", "evicted", "nameless_evicted"])
def test_every_cause_is_there_from_the_beginning(observed: Observed, cause: str) -> None:
    assert observed.value("sources_forgotten_total", cause=cause) == 0


@pytest.mark.parametrize(
    "name", ["sources_silent", "source_deaths_total", "identity_conflicts_total", "copies_dropped_total"]
)
def test_what_has_not_happened_yet_is_nought_and_there(observed: Observed, name: str) -> None:
    assert observed.value(name) == 0


# -- the daemon itself


def test_a_configuration_that_was_refused_is_shown_until_a_good_one_is_read(observed: Observed) -> None:
    assert observed.value("config_last_reload_successful") == 1
    observed.refused = "reload refused: no such key"
    assert observed.value("config_last_reload_successful") == 0


def test_how_long_the_loop_stood_still_is_shown(observed: Observed) -> None:
    assert (observed.value("loop_stalled_seconds_total"), observed.value("loop_stall_seconds")) == (0, 0)
    observed.stalls.come_by(997.0, 0.25)
    assert observed.value("loop_stall_seconds") == 2.75  # it still does: nobody has come by
    observed.stalls.come_by(1000.0, 0.25)
    assert (observed.value("loop_stalled_seconds_total"), observed.value("loop_stall_seconds")) == (2.75, 2.75)


def test_the_clock_is_the_hosts_at_the_moment_of_the_scrape(observed: Observed) -> None:
    before = time.time()
    shown = observed.value("clock_seconds")
    assert before <= shown <= time.time()
