"""Rules and dashboard, held to what a daemon and a recorder serve, and to the answers of a real Prometheus."""

from __future__ import annotations

import re
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bccnd.fleet.report_format import HeardHost, head_line, heard_line
from bccnd.pipeline.driver.build import Outcome
from bccnd.pipeline.driver.run_metrics import write_metrics
from tests.e2e.harness import KEY, PATIENCE, Daemon, Wire, datagram, wait
from tests.e2e.recorders import Recorder
from tests.etc.promql import Matcher, named
from tests.etc.rulebook import OWN, RULES, TARGET, dashboard, records, rules, shown
from tests.prometheus import Prometheus
from tests.support import cannot_here, free_port

#: parts of expressions that may have no answer: alerts that fire, and what is left out while it is 0
MAYBE_EMPTY: Final = ("count(ALERTS", "> 0")
#: labels that rules give themselves
GIVEN: Final = {"alertname", "alertstate", "severity", "where"}
#: numbers of reports
_REPORTS: Final = count(1)


class Live(NamedTuple):
    daemon: Daemon
    #: where the recorder serves its metrics
    recorder: str
    #: the labels of every sample that is served, by its name
    samples: dict[str, list[dict[str, str]]]

    def labels(self, metrics: Iterable[str]) -> set[str]:
        """The labels that samples of these metrics, or of what these are recorded of, have."""
        return TARGET | {
            name
            for one in metrics
            for metric in origins(one)
            for sample in self.samples.get(metric, [])
            for name in sample
        }


def origins(metric: str) -> set[str]:
    """The metrics that a record is made of; of any other metric itself."""
    if metric not in records:
        return {metric}
    return {origin for one in named(records[metric]).selectors for origin in origins(one.metric)}


def trouble(daemon: Daemon) -> None:
    """Forgeries, messages of which a third does not arrive, a client whose messages cannot be sent, and reports of a
    host that has lost some."""
    src, lost = f"a/b/{time.time_ns()}", daemon.metric("messages_lost_total")
    with Wire(daemon.port) as wire, daemon.connect("cards/") as client:
        client.publish("cards/own", b"x")
        for seq in range(1, 31):
            wire.send(datagram(src, seq, "cards/tx", b"x", KEY))
            wire.send(datagram(src, 1000 + seq, "cards/tx", b"x", b"not the key of this segment"))
        wire.send(*(datagram(src, seq, "cards/tx", b"x", KEY) for seq in range(60, 91)))
        for number in islice(_REPORTS, 2):
            text = head_line("1.0.0", 10_000, 1, 1) + heard_line(HeardHost("relay01", 1, 100 * number, number, 0, 0))
            wire.send(datagram("relay02/bccnd/1", number, "bccn/report/relay02", text, KEY))
        wait(lambda: daemon.metric("messages_lost_total") == lost + 29, "the loss to be counted")


def is_up(daemon: Daemon, gateway: str) -> bool:
    return daemon.metric("gateway_up", gateway=gateway) == 1


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    if not Path("/proc/net/if_inet6").exists():
        cannot_here("without IPv6 there is no segment that cannot be sent to")
    folder = tmp_path_factory.mktemp("live")
    daemon = Daemon(folder / "a", start=False)
    recorder = f"127.0.0.1:{free_port()}"
    # Loopback takes no multicast: each datagram for this segment is an error.
    broken = {"name": "broken", "address": "ff02::bcc", "interface": "lo", "port": free_port()}
    daemon.configure(
        {
            "segments": [{**daemon.settings["segments"][0], "name": "lan"}, broken],
            "integrity": daemon.with_key(KEY),
            "metrics": {"groups": {"cards": "cards/>"}},
            "heartbeat": {"interval": 1},
            "gateways": {
                "nng": {"listen": [f"ipc://{folder}/nng"]},
                "broker": {
                    "tcp": f"127.0.0.1:{free_port()}",
                    "udp": f"127.0.0.1:{free_port()}",
                    "state": str(folder / "broker.json"),
                },
            },
            "recorder": {"journal": str(folder / "journal"), "metrics": {"listen": recorder}},
        }
    )
    daemon.start()
    with daemon, Recorder(daemon):
        for gateway in ("nng", "broker"):
            wait(partial(is_up, daemon, gateway), f"the gateway {gateway}")
        trouble(daemon)
        samples: dict[str, list[dict[str, str]]] = defaultdict(list)
        write_metrics(str(folder / "pipeline.prom"), Outcome())
        for url in (f"{daemon.url}/metrics", f"http://{recorder}/metrics", (folder / "pipeline.prom").as_uri()):
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                for family in text_string_to_metric_families(answer.read().decode()):
                    for sample in family.samples:
                        samples[sample.name].append(dict(sample.labels))
        yield Live(daemon, recorder, dict(samples))


@pytest.fixture(scope="module")
def prometheus(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A server with the rules; a busy host may take a second to answer."""
    targets = {"bccnd": live.daemon.settings["metrics"]["listen"], "bccnd-recorder": live.recorder}
    config = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "500ms"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()
        ],
    }
    with Prometheus(tmp_path_factory.mktemp("prometheus"), config) as server:
        wait(lambda: len(server.ask("up == 1")) == 2, "Prometheus to have scraped both")
        trouble(live.daemon)
        yield server


def fits(matcher: Matcher, samples: list[dict[str, str]]) -> bool:
    """Whether samples have the label of a matcher, and each value that it names."""
    values = {labels[matcher.label] for labels in samples if matcher.label in labels}
    if "~" not in matcher.sign:
        return matcher.value in values
    return bool(values) and all(
        any(re.fullmatch(alternative, value) for value in values) for alternative in matcher.value.split("|")
    )


def faults(expression: str, live: Live) -> list[str]:
    """The selectors of an expression that nothing served fits."""
    found = []
    for selector in named(expression).selectors:
        if selector.metric in OWN or selector.metric in records:
            continue
        samples = live.samples.get(selector.metric, [])
        if not samples or any(not fits(one, samples) for one in selector.matchers if one.label not in TARGET):
            found.append(str(selector))
    return found


def test_rules_name_metrics_and_labels_that_are_served(live: Live) -> None:
    for rule in rules:
        found = named(rule["expr"])
        assert faults(rule["expr"], live) == []
        assert found.labels <= live.labels(live.samples)
        labels = live.labels(one.metric for one in found.selectors) | GIVEN
        labels |= set(re.findall(r'label_replace\(.*?, "(\w+)"', rule["expr"]))
        assert set(re.findall(r"\$labels\.(\w+)", str(rule.get("annotations", "")))) <= labels, rule


def test_the_dashboard_names_metrics_and_labels_that_are_served(live: Live) -> None:
    for text in shown():
        assert faults(text, live) == [], text
    for target in (target for panel in dashboard["panels"] for target in panel.get("targets", [])):
        labels = live.labels(one.metric for one in named(target["expr"]).selectors)
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"])
            assert asked is not None
            assert asked[1] in live.samples
            assert asked[2] in TARGET


@pytest.mark.slow
def test_every_record_and_every_panel_has_an_answer(prometheus: Prometheus) -> None:
    for name in records:
        wait(partial(prometheus.ask, name), f"{name} to be recorded")
    for text in shown():
        if any(part in text for part in MAYBE_EMPTY):
            prometheus.ask(text)  # is not refused
        else:
            wait(partial(prometheus.ask, text), f"an answer to {text}")
