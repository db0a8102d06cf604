"""A real Prometheus server scrapes the daemon and is asked over its API."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.harness import KEY, Daemon, Wire, datagram, payloads, wait
from tests.prometheus import Prometheus


def test_prometheus_sees_every_verdict_and_they_add_up(tmp_path: Path, signed: Daemon) -> None:
    signed.configure({"metrics": {"groups": {"cardsys": "cardsys/>"}}})
    signed.reload()
    job = {"job_name": "bccnd", "scrape_interval": "200ms", "scrape_timeout": "200ms"}
    targets = [{"targets": [signed.settings["metrics"]["listen"]]}]
    with (
        Prometheus(tmp_path, {"scrape_configs": [{**job, "static_configs": targets}]}) as prometheus,
        signed.connect("cardsys/") as client,
        Wire(signed.port) as wire,
    ):
        wire.send(
            *(datagram("a/b/1", seq, "cardsys/tx", b"12345", KEY) for seq in range(10)),
            datagram("a/b/1", 9, "cardsys/tx", b"12345", KEY),
            datagram("a/b/1", 20, "cardsys/tx", b"forged", b"not the key of this segment"),
            b"junk",
        )
        assert payloads(client, 10) == [b"12345"] * 10
        client.publish("cardsys/tx", b"mine")
        assert payloads(client, 1) == [b"mine"]
        expected = {
            "up": 1,
            "bccnd_datagrams_received_total": 14,
            "sum(bccnd_datagrams_total) - sum(bccnd_datagrams_received_total)": 0,
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
        verdicts = {row["verdict"]: count for row, count in prometheus.ask("bccnd_datagrams_total > 0")}
        assert verdicts == {"accepted": 10, "duplicate": 1, "integrity_failed": 1, "bad_envelope": 1, "looped": 1}
        assert (prometheus.value("bccnd_forward_seconds_count") or 0) >= 1
        segment = f"127.255.255.255#{signed.port}"
        assert prometheus.ask("bccnd_datagrams_received_total")[0][0]["segment"] == segment
        # Nothing that a sender chooses becomes a label.
        names = {name for row, _ in prometheus.ask('{job="bccnd"}') for name in row}
        assert names <= {
            "__name__", "job", "instance", "segment", "verdict", "reason", "error", "group", "cause", "result",
            "le", "version",
        }  # fmt: skip
