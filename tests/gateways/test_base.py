"""What a gateway says of all that it has dropped: once an hour and at the end, and only what is new."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from bccnd.core.tally import TALLY
from bccnd.gateways.base import Hourly, Status
from bccnd.net.log import Limited


class Ear(Limited):
    """Hears what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str, str]] = []

    def say(self, thing: Hashable, event: str, text: str, /, **fields: Any) -> None:  # type: ignore[override]
        assert fields["gateway"] == "broker"
        self.said.append((event, text, fields["drops"]))


def test_once_an_hour_and_at_the_end_it_is_said_what_fell_since() -> None:
    ear, status = Ear(), Status("broker")
    hourly = Hourly(ear, status, 100.0)
    hourly.look(100.0 + TALLY)
    assert ear.said == []  # nothing fell
    status.drop("filtered", 5210)
    status.drop("late")
    hourly.look(100.0 + 2 * TALLY - 1)
    assert ear.said == []
    hourly.look(100.0 + 2 * TALLY)
    hourly.look(100.0 + 2 * TALLY + 1)
    status.drop("late", 2)
    hourly.end()
    assert [(event, drops) for event, _, drops in ear.said] == [("tally", "filtered=5210 late=1"), ("tally", "late=2")]
    assert "filtered 5,210" in ear.said[0][1]


def test_one_that_ends_early_says_what_fell_since_the_start() -> None:
    ear, status = Ear(), Status("broker")
    hourly = Hourly(ear, status, 0.0)
    status.drop("no_topic")
    hourly.end()
    ((event, text, drops),) = ear.said
    assert (event, "since the start" in text, drops) == ("tally", True, "no_topic=1")
