"""Catalogue of everything that this host drops, under the one name used by metrics, log, status page and runbook.

To add a drop, add an entry to its family in `drops_segment`, `drops_bus` or `drops_gateways`, and count it; then
``python -m docs`` writes its runbook entry.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from bccnd.monitoring import drops_bus, drops_gateways, drops_segment
from bccnd.monitoring.drop_entry import Drop

#: all drops, in the order of a datagram's way: segment, bus, log, gateways, recorder
DROPS: Final[tuple[Drop, ...]] = tuple(
    chain.from_iterable(
        family.drops() for family in (*drops_segment.FAMILIES, *drops_bus.FAMILIES, *drops_gateways.FAMILIES)
    )
)
#: messages lost on the network: shown with the drops, but not dropped by this host
(LOST,) = drops_segment.LOST.drops()
