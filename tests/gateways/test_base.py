"""What a gateway logs of its drops."""

from __future__ import annotations

from contextlib import closing

from bccnd.gateways.base import format_address, log_drops
from bccnd.gateways.status import GatewayStatus
from tests.gateways.logs import Events


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
