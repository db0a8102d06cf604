"""Settings as the parts of a daemon take them, also outside the bounds of the configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bccnd.bus.clients.access_rules import Access
from bccnd.config.schema import BusSettings, QueueSettings, UserSettings
from bccnd.core.tracking.tracker_limits import TrackerLimits


def dedup_rules(*, deliver_late: bool = False, monotonic: bool = False, **changes: Any) -> TrackerLimits:
    return TrackerLimits(
        late="deliver" if deliver_late else "drop", freshness="monotonic" if monotonic else "restart", **changes
    )


def user_limits(**changes: Any) -> UserSettings:
    return UserSettings.model_construct(**changes)


def bus_limits(
    *, queue: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **changes: Any
) -> BusSettings:
    """``queue`` and ``user`` are what differs there from the defaults."""
    return BusSettings.model_construct(
        queue=QueueSettings.model_construct(**queue or {}), user=user_limits(**user or {}), **changes
    )


@dataclass
class BusRules:
    """What is in force on a bus."""

    bus: BusSettings
    access: Access
