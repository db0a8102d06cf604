"""The drop catalog: it has every reason in the code, and agrees with the metrics."""

from __future__ import annotations

import re
from collections import Counter
from typing import cast

from bccnd import log
from bccnd.bus.requests.recorder_reports import RECORDED
from bccnd.core.observing.counters import DROP_REASONS, END_REASONS, ERROR_REASONS, REFUSE_REASONS
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES
from bccnd.drop_catalog.drops import DROPS, GATEWAY_REASONS
from bccnd.fleet.report_format import REASONS as REPORT_REASONS
from bccnd.gateways.status import GatewayStatus
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.drop_counts import count_drops
from bccnd.monitoring.drop_reporter import LOGGED_AT_SOURCE
from bccnd.monitoring.take_snapshot import take_snapshot
from bccnd.net.http import REASONS as VISITORS
from tests.monitoring.pages import Observed

FALLS = re.compile(r"drop|refus|error|lost|evict|forgot|conflict|ended|not_kept|unwatch|remov|torn|aside|fail|gap")


def of(family: str) -> set[str]:
    return {drop.name for drop in DROPS if drop.family == family}


def test_every_reason_is_in_the_table() -> None:
    assert of("datagrams") == set(NAMES[LAST_ACCEPTED + 1 :])
    assert of("deliveries_dropped") == set(DROP_REASONS)
    assert of("clients_refused") == set(REFUSE_REASONS)
    assert of("clients_ended") == set(END_REASONS)
    assert of("client_errors") == set(ERROR_REASONS)
    assert of("visitors_refused") == set(VISITORS)
    assert of("reports_refused") == set(REPORT_REASONS)
    assert of("log_lines_dropped") == set(log.lines_dropped())
    assert of("gateway_dropped") == set(GATEWAY_REASONS)
    assert {(drop.family, drop.name) for drop in DROPS if drop.family.startswith("recorder_")} == set(RECORDED)
    assert {drop.family for drop in DROPS} >= LOGGED_AT_SOURCE


def test_metrics_show_what_is_counted(busy: Observed) -> None:
    assert busy.links.report(
        next(iter(busy.bus.clients.values())), GatewayStatus("nng", dropped={"queue_full": 3}).report()
    )
    samples = busy.samples()
    places: Counter[tuple[str, str]] = Counter()
    for drop, place, count in count_drops(take_snapshot(cast(DaemonState, busy)).drops):
        if drop.family.startswith("recorder_"):  # the recorder's own listener has these
            continue
        wanted = {(drop.label, drop.name)} if drop.label else set()
        where = {("segment", place), ("gateway", place)} if place else set()
        found = [
            value
            for (name, pairs), value in samples.items()
            if name == f"{drop.family}_total" and wanted <= pairs and (not where or where & pairs)
        ]
        if drop.family == "send_errors":  # a sample for each error that there was
            found = [sum(found)]
        assert found == [count], drop
        places[drop.family, drop.name] += 1
    assert set(places) == {(drop.family, drop.name) for drop in DROPS if not drop.family.startswith("recorder_")}


def test_every_counter_of_drops_in_metrics_is_in_the_table(busy: Observed) -> None:
    counters = {
        name.removeprefix("bccnd_")
        for name, family in busy.families().items()
        if family.type == "counter" and name.startswith("bccnd_")
    }
    assert {name for name in counters if FALLS.search(name)} - {drop.family for drop in DROPS} == {
        "messages_lost",
        "reported_lost",
    }
    labels = {drop.family: drop.label for drop in DROPS if drop.label and drop.family != "datagrams"}
    for name, pairs in busy.samples():
        family = name.removesuffix("_total")
        if name.endswith("_total") and family in labels:
            assert dict(pairs)[labels[family]] in of(family)
