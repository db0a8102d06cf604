"""The reasons for which gateways drop messages or connections, from the catalog of drops."""

from __future__ import annotations

from typing import Final

from bccnd.monitoring.drop_catalog import DROPS
from bccnd.monitoring.drop_entry import Drop

GATEWAY_DROPS: Final[dict[str, Drop]] = {drop.name: drop for drop in DROPS if drop.family == "gateway_dropped"}
#: labels of a metric
REASONS: Final = tuple(GATEWAY_DROPS)


def explain(reason: str) -> tuple[str, str]:
    """Return what a drop means and its remedy, as parts of a sentence."""
    drop = GATEWAY_DROPS[reason]
    means, remedy = ((text[0].lower() + text[1:]).removesuffix(".") for text in (drop.means, drop.remedy))
    return means, remedy
