"""What a gateway logs of its drops: what has grown, once an hour and at the end all of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bccnd.core.drop_summary import TALLY
from bccnd.gateways.base import GatewayDropReporter, format_address
from bccnd.gateways.status import Status
from tests.gateways.logs import Events


@pytest.fixture
def events() -> Iterator[Events]:
    found = Events()
    yield found
    found.close()


def test_all_drops_are_logged_once_an_hour_and_at_the_end(events: Events) -> None:
    status = Status("broker")
    reporter = GatewayDropReporter(status, ("late",), 100.0)
    reporter.report(100.0 + TALLY)
    assert events.records == []
    status.drop("filtered", 5210)
    reporter.report(100.0 + 2 * TALLY - 1)
    assert events.records == []
    reporter.report(100.0 + 2 * TALLY)
    status.drop("late", 3)
    reporter.report(100.0 + 2 * TALLY + 1)
    reporter.report(100.0 + 2 * TALLY + 2)
    reporter.close()
    assert [(event, more.get("drops", more.get("count"))) for event, _, more in events.records] == [
        ("tally", "filtered=5210"),
        ("gateway_dropped", 3),
        ("tally", "late=3"),
    ]
    assert {more["gateway"] for *_, more in events.records} == {"broker"}
    assert "in the last hour: filtered 5,210" in events.records[0][1]
    assert "since that was last reported" in events.records[2][1]


def test_one_that_ends_early_logs_its_drops_since_the_start(events: Events) -> None:
    status = Status("broker")
    reporter = GatewayDropReporter(status, (), 0.0)
    status.drop("no_topic")
    reporter.close()
    ((event, text, more),) = events.records
    assert (event, "since the start" in text, more["drops"]) == ("tally", True, "no_topic=1")


def test_addresses_are_written_as_usual() -> None:
    assert format_address(("10.0.0.7", 5400)) == "10.0.0.7:5400"
    assert format_address(("2001:db8::7", 5400, 0, 0)) == "[2001:db8::7]:5400"
    assert format_address(("::ffff:10.0.0.7", 5400, 0, 0)) == "10.0.0.7:5400"
