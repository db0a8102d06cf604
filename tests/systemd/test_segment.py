"""Two hosts on a wire that loses, copies, delays and reorders, while their daemons are restarted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pytest

from tests.systemd import load
from tests.systemd.conftest import Hosts
from tests.systemd.host import Host, wait

RATE: Final = 500
SEED: Final = 20_260_721
#: what was overtaken is delivered, once; a second is more than the hub ever holds anything back
_SETTINGS: Final[dict[str, Any]] = {"dedup": {"late": "deliver", "horizon": "1s"}}


def compare(
    wire: dict[str, Any], host: Host, report: dict[str, Any], others: dict[int, int], own: dict[int, int]
) -> None:
    """Hold what the clients of a host got to what the hub has brought there."""
    brought = wire["ports"][host.network]
    assert brought["failed"] == 0
    for connection in report["connections"]:
        assert not connection["ended"]
        assert connection["told"] == connection["refused"] == connection["strange"] == 0
        assert all(heard["doubled"] == 0 for heard in connection["publishers"].values())
    for publisher, count in own.items():
        # Its own programs' messages do not travel: all are there, in order.
        assert load.lacking(report, publisher, count) == [set()] * len(report["connections"])
        assert all(one["publishers"][str(publisher)]["disordered"] == 0 for one in report["connections"])
    for publisher, count in others.items():
        lost = load.numbers(brought["publishers"][str(publisher)]["missing"])
        assert load.lacking(report, publisher, count) == [lost] * len(report["connections"])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_host_gets_exactly_what_the_wire_has_brought_once(hosts: Hosts, programs: Path, restarted: bool) -> None:
    segment = hosts.wire("ab", bridged=False)
    # Of a hundred datagrams it loses ten and brings ten twice, each up to 20 ms late.
    with load.hub(segment, programs, SEED, lost=100, copied=100, delay=0.02) as hub:
        a, b = (hosts.ready(letter, _SETTINGS) for letter in "ab")
        with (
            load.witness(a, "-n", "3", "-b", "1") as at_a,
            load.witness(b, "-n", "3", "-b", "1") as at_b,
            load.local_speaker(a, 0, RATE) as of_a,
            load.local_speaker(b, 1, RATE) as of_b,
        ):
            for _ in range(4):
                time.sleep(1)
                for host in (a, b) if restarted else ():
                    before = host.main_pid()
                    host.run("systemctl", "restart", "bccnd.service")
                    wait(lambda: host.main_pid() not in (0, before), "the next daemon")  # noqa: B023
            for host in (a, b):
                host.wait_active()
            time.sleep(0.5)
            sent = {0: of_a.finish()["sent"], 1: of_b.finish()["sent"]}
            reports = [at_a.finish(), at_b.finish()]
            dropped = [segment.dropped(letter) for letter in "ab"]
        wire = hub.finish()
    assert wire["overflow"] == sum(dropped) == 0
    assert min(sent.values()) > 4 * RATE
    compare(wire, a, reports[0], {1: sent[1]}, {0: sent[0]})
    compare(wire, b, reports[1], {0: sent[0]}, {1: sent[1]})
    for host, publisher in ((a, 1), (b, 0)):
        brought = wire["ports"][host.network]
        heard = brought["publishers"][str(publisher)]
        # The wire was as bad as it was meant to be.
        lost = sent[publisher] - heard["count"]
        assert 0.07 < lost / sent[publisher] < 0.13
        assert heard["doubled"] > 0.05 * sent[publisher]
        assert heard["disordered"] > 0.3 * sent[publisher]
        assert host.kernel_drops() == 0
        # What copies and latecomers are is known to the trackers, and a restart makes them forget nothing.
        assert host.metric("source_restarts_total") == 0
        if not restarted:
            wait(lambda: host.metric("messages_missing") == 0, "the gaps to be given up")  # noqa: B023
            # But for the last ones, behind which nothing came.
            assert abs(host.metric("messages_lost_total") - lost) <= 3
            assert host.metric("datagrams_total", verdict="duplicate") == heard["doubled"]
