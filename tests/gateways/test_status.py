"""The status of a gateway is read as it was reported, and nothing else is; drops are logged as they grow."""

from __future__ import annotations

import json
import math
import time
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.drop_catalog.drops import GATEWAY_REASONS
from bccnd.gateways.base import format_address, log_drops
from bccnd.gateways.status import MAX_NAMED, GatewayStatus, read_report
from bccnd.snapshot import GatewayPeerState
from tests.gateways.peers import Events


def test_a_report_is_read_as_it_was_written() -> None:
    status = GatewayStatus("nng", [GatewayPeerState("10.0.0.2:5410", "tcp://b:5410", 12.5, 1, 2, 3, 4)], 5, 6, 7, 8, 9)
    status.drop("queue_full")
    status.drop("queue_full", 2)
    found = read_report(status.report())
    assert found is not None
    assert found.gateway == "nng"
    peer = {"peer": "10.0.0.2:5410", "name": "tcp://b:5410", "since": 12.5}
    assert [vars(one) for one in found.peers] == [{**peer, "received": 1, "sent": 2, "dropped": 3, "queued": 4}]
    assert (found.received, found.received_bytes, found.sent, found.sent_bytes, found.connects) == (5, 6, 7, 8, 9)
    assert found.dropped == {**dict.fromkeys(GATEWAY_REASONS, 0), "queue_full": 3}


def test_all_reports_of_a_process_name_its_start() -> None:
    first, second = read_report(GatewayStatus("nng").report()), read_report(GatewayStatus("nng", sent=1).report())
    assert first is not None
    assert second is not None
    assert 0 < first.started == second.started <= time.monotonic()


def test_of_many_peers_some_are_named_and_all_are_counted() -> None:
    found = read_report(
        GatewayStatus("broker", [GatewayPeerState(f"127.0.0.1:{n}") for n in range(MAX_NAMED + 50)]).report()
    )
    assert found is not None
    assert len(found.peers) == MAX_NAMED
    assert found.peers_connected == MAX_NAMED + 50


def test_unknown_reasons_and_names_become_no_labels() -> None:
    report = json.loads(GatewayStatus("nng").report())
    found = read_report(json.dumps({**report, "dropped": {"made_up": 1, "late": 2}}).encode())
    assert found is not None
    assert set(found.dropped) == set(GATEWAY_REASONS)
    assert found.dropped["late"] == 2
    assert read_report(json.dumps({**report, "gateway": "made_up"}).encode()) is None


@pytest.mark.parametrize(
    "changed",
    [
        *({"gateway": None}, {"gateway": ["nng"]}, {"received": "many"}, {"received": None}),
        *({"dropped": 5}, {"dropped": {"late": []}}, {"received": math.inf}, {"received": 2**63}),
        *({"peers": [{"peer": "x" * 600}]}, {"peers": [{"peer": "x", "since": math.nan}]}, {"sent": 1.5}),
        *({"peers": [{"peer": "x", "since": since}]} for since in (1e300, 1e12, -1.0)),
        *({"started": 1e300}, {"started": -1.0}, {"started": math.inf}),
        *({"peers": 5}, {"peers": [5]}, {"peers": [{}]}),
    ],
)
def test_what_makes_no_sense_is_no_report(changed: dict[str, Any]) -> None:
    report = json.loads(GatewayStatus("nng").report())
    assert read_report(json.dumps({**report, **changed}).encode()) is None


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_no_bytes_raise(text: bytes) -> None:
    assert read_report(text) is None


def test_a_drop_is_logged_when_its_count_has_grown() -> None:
    status = GatewayStatus("broker")
    with closing(Events()) as events:
        log_drops(status, ("late",))
        status.drop("filtered", 5210)
        log_drops(status, ("late",))
        assert events.records == []
        status.drop("late", 3)
        for _ in range(2):
            log_drops(status, ("late",))
    ((event, _, more),) = events.records
    assert (event, more["gateway"], more["reason"], more["count"]) == ("gateway_dropped", "broker", "late", 3)


def test_addresses_are_written_as_usual() -> None:
    assert format_address(("10.0.0.7", 5400)) == "10.0.0.7:5400"
    assert format_address(("2001:db8::7", 5400, 0, 0)) == "[2001:db8::7]:5400"
    assert format_address(("::ffff:10.0.0.7", 5400, 0, 0)) == "10.0.0.7:5400"
