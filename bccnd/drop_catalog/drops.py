"""Catalogue of everything that this host drops, under the one name used by metrics, log, status page and runbook.

To add a drop, add it to `segment`, `bus`, `host` or `gateways`, and count it; then ``python -m docs --write`` writes
its runbook entry.
"""

from __future__ import annotations

from typing import Final

from bccnd.drop_catalog import bus, gateways, host, segment

#: all drops, in the order of a datagram's way: segment, bus, host, gateways, recorder
DROPS: Final = (*segment.DROPS, *bus.DROPS, *host.DROPS, *gateways.DROPS)
#: the same by family and name
BY_NAME: Final = {(drop.family, drop.name): drop for drop in DROPS}
#: the reasons for which gateways drop messages or connections: labels of a metric
GATEWAY_REASONS: Final = tuple(drop.name for drop in DROPS if drop.family == "gateway_dropped")
#: messages lost on the network: shown with the drops, but not dropped by this host
LOST: Final = segment.LOST
