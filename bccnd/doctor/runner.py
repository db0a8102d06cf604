"""Runs all checks, in the order in which an operator would make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from bccnd.doctor import check_bus, check_files, check_host, check_network
from bccnd.doctor.probe import Probe
from bccnd.doctor.result import CheckFinding, Result, not_checked

CHECKS: Final[dict[str, Callable[[Probe], Iterator[CheckFinding]]]] = {
    "configuration": check_files.check_configuration,
    "keys": check_files.check_keys,
    "certificates": check_files.check_certificates,
    "bus socket": check_bus.check_socket,
    "group": check_bus.check_group,
    "daemon": check_bus.check_daemon,
    "service": check_host.check_service,
    "log": check_host.check_log,
    "interface": check_network.check_interface,
    "route": check_network.check_route,
    "port": check_network.check_port,
    "receive buffer": check_network.check_receive_buffer,
    "round trip": check_network.check_round_trip,
    "firewall": check_network.check_firewall,
    "traffic": check_bus.check_traffic,
    "gateways": check_bus.check_gateways,
    "metrics": check_bus.check_metrics,
    "descriptors": check_host.check_descriptors,
    "recorder": check_files.check_recorder,
    "clock": check_host.check_clock,
}


def run_checks(probe: Probe) -> Iterator[Result]:
    """Results as they are found; a check with a bug ends alone."""
    for name, check in CHECKS.items():
        try:
            for finding in check(probe):
                yield Result(name, *finding)
        except Exception as error:  # noqa: BLE001
            yield Result(name, *not_checked(f"this check failed: {error!r}", "report it"))
