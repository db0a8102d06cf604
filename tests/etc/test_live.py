"""Rules and dashboard, held to a real daemon and a real recorder that a real Prometheus scrapes: every metric that they
name is there with its labels and their values, every expression has an answer, and real trouble raises the alert."""

from __future__ import annotations

import re
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bccnd.daemon import SWEEP
from tests.e2e.harness import KEY, PATIENCE, Daemon, Wire, datagram, wait
from tests.e2e.recorders import Recorder
from tests.etc.live import Prometheus
from tests.etc.promql import Matcher, Selector, named
from tests.etc.rulebook import OWN, TARGET, dashboard, records, rules, shown, unit_tests
from tests.support import cannot_here, free_port

#: what there is only when something has gone wrong that does not here
ABSENT: Final = {
    "count(ALERTS": "an alert that fires is waited for by a test of its own",
    "> 0": "what is left out while it is nought",
}
#: labels that rules give themselves
GIVEN: Final = {"alertname", "alertstate", "severity", "where"}


class Live(NamedTuple):
    daemon: Daemon
    prometheus: Prometheus
    #: every sample that is served: names, and the labels that come with them
    samples: dict[str, list[dict[str, str]]]


def ipv6_here() -> bool:
    return Path("/proc/net/if_inet6").exists()


def served(url: str) -> Iterator[tuple[str, dict[str, str]]]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
        for family in text_string_to_metric_families(answer.read().decode()):
            for sample in family.samples:
                yield sample.name, dict(sample.labels)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    if not ipv6_here():
        cannot_here("there is no IPv6: nothing that could not be sent to")
    folder = tmp_path_factory.mktemp("live")
    daemon = Daemon(folder / "a", start=False)
    recorder_at = f"127.0.0.1:{free_port()}"
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
            "recorder": {"journal": str(folder / "journal"), "metrics": {"listen": recorder_at}},
        }
    )
    daemon.start()
    with daemon, Recorder(daemon):
        prometheus = Prometheus(folder, {"bccnd": daemon.settings["metrics"]["listen"], "bccnd-recorder": recorder_at})
        try:
            wait(lambda: len(prometheus.ask("up == 1")) == 2, "Prometheus to have scraped both")
            trouble(daemon)
            samples: dict[str, list[dict[str, str]]] = {}
            for url in (daemon.url, f"http://{recorder_at}"):
                for name, labels in served(url):
                    samples.setdefault(name, []).append(labels)
            yield Live(daemon, prometheus, samples)
        finally:
            prometheus.close()


def trouble(daemon: Daemon) -> None:
    """Somebody who forges, somebody of whose messages a third does not arrive, a program that may not be sent."""
    with Wire(daemon.port) as wire, daemon.connect("cards/") as client:
        client.publish("cards/own", b"x")
        for seq in range(1, 31):
            wire.send(datagram("a/b/1", seq, "cards/tx", b"x", KEY))
            wire.send(datagram("a/b/1", 1000 + seq, "cards/tx", b"x", b"not the key of this segment"))
        wire.send(*(datagram("a/b/1", seq, "cards/tx", b"x", KEY) for seq in range(60, 91)))
        # Beyond the horizon; what is missing until then is lost.
        wait(lambda: daemon.metric("messages_lost_total") == 29, "the loss to be counted")


def fits(matcher: Matcher, samples: list[dict[str, str]]) -> bool:
    """Whether a matcher speaks of something: its label is there, and each value that it names."""
    values = {labels[matcher.label] for labels in samples if matcher.label in labels}
    if "~" not in matcher.sign:
        return matcher.value in values
    return bool(values) and all(
        any(re.fullmatch(alternative, value) for value in values) for alternative in matcher.value.split("|")
    )


def found_wanting(selector: Selector, live: Live) -> str:
    """What there is to say against a selector, as things are."""
    if selector.metric in OWN or selector.metric in records():
        return ""  # those are asked of Prometheus itself
    if selector.metric not in live.samples:
        return f"{selector.metric} is served by nobody"
    for matcher in selector.matchers:
        if matcher.label not in TARGET and not fits(matcher, live.samples[selector.metric]):
            return f"{selector}: {matcher.label} never is {matcher.value}"
    return ""


def test_this_test_would_notice(live: Live) -> None:
    assert found_wanting(Selector("bccnd_datagrams"), live)
    assert found_wanting(Selector("bccnd_datagrams_total", (Matcher("verdict", "=", "lost"),)), live)
    assert found_wanting(Selector("bccnd_datagrams_total", (Matcher("verdict", "=~", "stale|lost"),)), live)
    assert found_wanting(Selector("bccnd_datagrams_total", (Matcher("reason", "!=", "lost"),)), live)
    assert not found_wanting(Selector("bccnd_datagrams_total", (Matcher("verdict", "=~", "stale|bad_.*"),)), live)


def test_every_metric_of_a_rule_is_served_with_its_labels(live: Live) -> None:
    for rule in rules():
        found = named(rule["expr"])
        assert [text for one in found.selectors if (text := found_wanting(one, live))] == []
        labels = {name for samples in live.samples.values() for sample in samples for name in sample}
        assert found.labels <= labels | TARGET


def test_every_label_that_an_alert_tells_of_is_there(live: Live) -> None:
    for rule in rules():
        text = str(rule.get("annotations", ""))
        mentioned = set(re.findall(r"\$labels\.(\w+)", text))
        samples = [
            sample
            for one in named(rule["expr"]).selectors
            for metric in ({one.metric} if one.metric not in records() else sources(one.metric))
            for sample in live.samples.get(metric, [{}])
        ]
        labels = {name for sample in samples for name in sample} | TARGET | GIVEN
        labels |= set(re.findall(r'label_replace\(.*?, "(\w+)"', rule["expr"]))
        assert mentioned <= labels, rule["alert"]


def sources(record: str) -> set[str]:
    """The metrics that a record is made of, by whatever way."""
    found: set[str] = set()
    for one in named(records()[record]).selectors:
        found |= sources(one.metric) if one.metric in records() else {one.metric}
    return found


def test_every_series_of_the_unit_tests_could_be(live: Live) -> None:
    for group in unit_tests()["tests"]:
        for series in group["input_series"]:
            (one,) = named(series["series"]).selectors
            if one.metric in OWN:
                continue
            assert one.metric in live.samples, series
            labels = {name for sample in live.samples[one.metric] for name in sample} | TARGET | {"site"}
            assert {matcher.label for matcher in one.matchers} <= labels, series
            for matcher in one.matchers:
                if matcher.label in ("verdict", "reason", "cause", "gateway", "direction"):
                    assert fits(matcher, live.samples[one.metric]), series


def test_every_metric_of_the_dashboard_is_served_with_its_labels(live: Live) -> None:
    for text in shown():
        found = named(text)
        # ".+" stands for whatever is chosen above
        assert [wrong for one in found.selectors if (wrong := found_wanting(one, live))] == [], text
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            labels = set(TARGET)
            for one in named(target["expr"]).selectors:
                for metric in sources(one.metric) if one.metric in records() else {one.metric}:
                    labels |= {name for sample in live.samples.get(metric, []) for name in sample}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"])
            assert asked is not None
            assert asked[1] in live.samples
            assert asked[2] in TARGET


def test_everything_recorded_and_every_panel_has_an_answer(live: Live) -> None:
    for name in records():
        wait(lambda name=name: live.prometheus.ask(name), f"{name} to be recorded")  # type: ignore[misc]
    for text in shown():
        if not any(part in text for part in ABSENT):
            wait(lambda text=text: live.prometheus.ask(text), f"an answer to {text}")  # type: ignore[misc]
        else:
            live.prometheus.ask(text)  # is not refused at least


def test_real_trouble_raises_the_alerts_that_it_should_and_no_others(live: Live) -> None:
    with Wire(live.daemon.port) as wire, live.daemon.connect("x") as client:

        def firing() -> dict[str, dict[str, str]]:
            # What keeps coming: forgeries, and messages that the second segment does not take.
            wire.send(datagram("a/b/1", 5000, "cards/tx", b"x", b"not the key of this segment"))
            client.publish("x", b"x")
            time.sleep(0.05)
            return {
                f"{one['labels']['alertname']} {one['labels']['severity']}": {**one["labels"], **one["annotations"]}
                for one in live.prometheus.alerts()
                if one["state"] == "firing"
            }

        expected = {"BccndLoss warning", "BccndIntegrity warning", "BccndSendErrors warning"}
        wait(lambda: expected <= set(firing()), "the alerts")
        found = firing()
    instance = live.daemon.settings["metrics"]["listen"]
    integrity = found["BccndIntegrity warning"]
    assert (integrity["verdict"], integrity["segment"]) == ("integrity_failed", "lan")
    assert integrity["description"].startswith(f"{instance} refuses ")
    assert f"{instance} loses 32" in found["BccndLoss warning"]["summary"]  # 29 of 90
    assert found["BccndSendErrors warning"]["error"] == "ENETUNREACH"
    # More fails on that segment than goes out, and programs are told so; a third of all is lost; nobody is at the link.
    also = {"BccndSendErrors critical", "BccndLoss critical", "BccndLinkPeers critical", "BccndClientErrors warning"}
    assert set(found) - expected <= also


def test_a_daemon_that_stood_still_says_for_how_long(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon:
        assert daemon.metric("loop_stall_seconds") == 0
        daemon.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        time.sleep(8 * SWEEP)
        held = time.monotonic() - stopped
        daemon.signal(signal.SIGCONT)
        # What the pause has left of the time until it would have come by is no stall.
        wait(lambda: daemon.metric("loop_stalled_seconds_total") >= held - SWEEP, "the stall to be counted")
        assert daemon.metric("loop_stall_seconds") >= held - SWEEP


def test_a_configuration_that_was_refused_is_shown_until_it_is_mended(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon:
        assert daemon.metric("config_last_reload_successful") == 1
        good = daemon.config.read_text()
        daemon.config.write_text("{nonsense: true}")
        daemon.reload()
        assert daemon.metric("config_last_reload_successful") == 0
        daemon.config.write_text(good)
        daemon.reload()
        assert daemon.metric("config_last_reload_successful") == 1
