"""A real Prometheus server scrapes the daemon and is asked over its API."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import KEY, PATIENCE, Daemon, Wire, datagram, payloads, wait
from tests.support import ROOT, free_port


class Prometheus:
    """A server with one target, asked over HTTP."""

    def __init__(self, program: str, folder: Path, target: str) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        config = folder / "prometheus.yaml"
        job = {"job_name": "bccnd", "scrape_interval": "200ms", "scrape_timeout": "200ms"}
        config.write_text(json.dumps({"scrape_configs": [{**job, "static_configs": [{"targets": [target]}]}]}))
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={self._url.removeprefix('http://')}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The result of an instant query: labels and value of each series."""
        try:
            url = f"{self._url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                result = json.load(answer)["data"]["result"]
        except OSError:  # not up yet
            return []
        return [(row["metric"], float(row["value"][1])) for row in result]

    def value(self, query: str) -> float | None:
        rows = self.ask(query)
        return rows[0][1] if rows else None

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._log.close()


@pytest.fixture
def program() -> str:
    unpacked = ROOT / ".cache/prometheus/usr/bin/prometheus"
    found = str(unpacked) if unpacked.exists() else shutil.which("prometheus")
    if found is None:
        assert "CI" not in os.environ, "where CI is set, Prometheus is required"
        pytest.skip("no Prometheus here: packaging/unpack-prometheus.sh .cache/prometheus gets it")
    return found


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "a", {"metrics": {"groups": {"cardsys": "cardsys/>"}}}, start=False)
    daemon.configure({"integrity": daemon.with_key(KEY)})
    daemon.start()
    with daemon:
        yield daemon


def test_prometheus_sees_every_verdict_and_they_add_up(tmp_path: Path, program: str, daemon: Daemon) -> None:
    target = daemon.settings["metrics"]["listen"]
    prometheus = Prometheus(program, tmp_path, target)
    try:
        with daemon.connect("cardsys/") as client, Wire(daemon.port) as wire:
            wire.send(
                *(datagram("a/b/1", seq, "cardsys/tx", b"12345", KEY) for seq in range(10)),
                datagram("a/b/1", 9, "cardsys/tx", b"12345", KEY),
                datagram("a/b/1", 20, "cardsys/tx", b"forged", b"not the key of this segment"),
                b"junk",
            )
            assert payloads(client, 10) == [b"12345"] * 10
            client.publish("cardsys/tx", b"mine")
            assert payloads(client, 1) == [b"mine"]
            wait(lambda: prometheus.value("bccnd_datagrams_received_total") == 14, "Prometheus to have scraped")
            assert prometheus.value("up") == 1
            verdicts = {row["verdict"]: count for row, count in prometheus.ask("bccnd_datagrams_total > 0")}
            assert verdicts == {"accepted": 10, "duplicate": 1, "integrity_failed": 1, "bad_envelope": 1, "looped": 1}
            difference = "sum(bccnd_datagrams_total) - sum(bccnd_datagrams_received_total)"
            assert prometheus.value(difference) == 0
            expected = {
                "bccnd_deliveries_total": 11,
                "bccnd_datagrams_sent_total": 1,
                "bccnd_clients": 1,
                "bccnd_subscriptions": 1,
                "bccnd_sources": 1,
                "bccnd_sources_alive": 1,
                "bccnd_messages_missing": 0,
                "bccnd_messages_lost_total": 0,
                "bccnd_source_restarts_total": 0,
                "bccnd_socket_drops_total": 0,
                "bccnd_queue_bytes": 0,
                "sum(bccnd_deliveries_dropped_total)": 0,
                'bccnd_channel_messages_total{group="cardsys"}': 10,
                'bccnd_channel_bytes_total{group="cardsys"}': 50,
                "bccnd_build_info": 1,
            }
            wait(lambda: {query: prometheus.value(query) for query in expected} == expected)
            assert (prometheus.value("bccnd_forward_seconds_count") or 0) >= 1
            segment = f"127.255.255.255#{daemon.port}"
            assert prometheus.ask("bccnd_datagrams_received_total")[0][0]["segment"] == segment
            # Nothing that a stranger chooses becomes a label.
            names = {name for row, _ in prometheus.ask('{job="bccnd"}') for name in row}
            assert names <= {
                "__name__", "job", "instance", "segment", "verdict", "reason", "error", "group", "cause", "result",
                "le", "version",
            }  # fmt: skip
    finally:
        prometheus.close()
