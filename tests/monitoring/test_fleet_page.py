"""The pages about the fleet: one answer for all that ask at once, and a failure costs one request only."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import pytest

from bccnd.fleet.matrix import FleetMatrix
from bccnd.fleet.steps import Steps
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.fleet_page import CACHE_TIME, FleetPage, write_fleet
from bccnd.net.http import Job
from tests.monitoring.pages import Observed, finished
from tests.support import Hub


@pytest.fixture
def observed(hub: Hub) -> Observed:
    return Observed(hub, [])


def test_requests_of_two_seconds_share_one_answer(observed: Observed) -> None:
    page = FleetPage(cast(DaemonState, observed), write_fleet)
    first, second = page(""), page("")
    assert first is second
    body = finished(first)
    assert json.loads(body[2])["hosts"][0]["host"] == "relay01"
    assert page("") is body
    observed.clock += CACHE_TIME
    assert page("") is not body


def failing(times: int) -> Callable[[FleetMatrix, str, float], Steps[bytes]]:
    """Make answers of two steps, of which the first ``times`` end by a bug."""
    left = [times]

    def make(_matrix: FleetMatrix, _own: str, _now: float) -> Steps[bytes]:
        yield
        if left[0]:
            left[0] -= 1
            raise KeyError("a bug")
        return b"{}"

    return make


def test_a_failure_costs_one_request_only(observed: Observed) -> None:
    page = FleetPage(cast(DaemonState, observed), failing(1))
    one, other = page(""), page("")
    assert not isinstance(one, tuple)
    with pytest.raises(KeyError):
        finished(one)
    expected = 200, "application/json", b"{}"
    assert finished(cast(Job, other)) == expected
    assert finished(page("")) == expected
