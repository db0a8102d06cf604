"""Sending twice: measured on a wire that loses one datagram in ten, by chance."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Daemon, Wire, payloads, wait
from tests.e2e.network import Net

MESSAGES = 4000


@pytest.mark.root
@pytest.mark.parametrize(
    ("rule", "late", "least", "most"),
    [
        # Copies right behind one another arrive in order.
        ({"copies": 2, "spacing": 0}, "drop", 0.003, 0.02),
        pytest.param(None, "drop", 0.07, 0.13, marks=pytest.mark.slow),
        # A copy that comes behind later messages is late: it helps only receivers that take late ones.
        pytest.param({"copies": 2, "spacing": "2ms"}, "deliver", 0.003, 0.02, marks=pytest.mark.slow),
        pytest.param({"copies": 3, "spacing": "2ms"}, "deliver", 0.0, 0.005, marks=pytest.mark.slow),
    ],
    ids=["twice at once", "once", "twice, 2 ms apart", "three times"],
)
def test_with_one_datagram_in_ten_lost_sending_twice_loses_one_message_in_a_hundred(
    tmp_path: Path, net: Net, rule: dict[str, Any] | None, late: str, least: float, most: float
) -> None:
    queue = {"queue": {"messages": 100_000, "bytes": "64MiB"}}
    sender, receiver = (net.daemon(host, tmp_path, start=False) for host in "ab")
    sender.configure({"repeat": [{"channels": "x/", **rule}] if rule else []})
    receiver.configure({"dedup": {"late": late, "horizon": "500ms"}, "bus": {"queue": queue["queue"]}})
    with sender, receiver:
        sender.start()
        receiver.start()
        with sender.connect() as here, receiver.connect("x/") as there:
            net.lose("b", 10)
            for number in range(MESSAGES):
                here.publish("x/y", b"%d" % number)
                if number % 50 == 0:  # some 10,000 a second, so that no buffer has a part in it
                    time.sleep(0.005)
            assert here.sync() == []
            copies = (rule or {}).get("copies", 1)
            wait(lambda: sender.metric("datagrams_sent_total") == copies * MESSAGES, "all copies")
            got = payloads(there, MESSAGES, 1.0)
        lost = 1 - len(got) / MESSAGES
        assert least <= lost <= most, f"lost {lost:.2%}"
        assert len(set(got)) == len(got)
        # The trackers say the same (but for the last ones, behind which nothing came).
        wait(lambda: receiver.metric("messages_missing") == 0)
        assert abs(receiver.metric("messages_lost_total") - (MESSAGES - len(got))) <= 3
        assert receiver.metric("socket_drops_total") == 0


def test_copies_that_wait_are_sent_before_the_daemon_ends_and_rules_can_be_reloaded(tmp_path: Path) -> None:
    slow = {"repeat": [{"channels": "", "copies": 2, "spacing": "1s"}]}
    with Daemon(tmp_path / "a", slow) as daemon, Wire(daemon.port) as wire, daemon.connect() as client:
        client.publish("x", b"before")
        assert client.sync() == []
        daemon.configure({"repeat": []})
        daemon.reload()
        client.publish("x", b"after")
        assert client.sync() == []
        assert daemon.stop() == 0
        heard = [wire.hear(b"BCCN1").rpartition(b"|")[2] for _ in range(3)]
        assert heard == [b"before", b"after", b"before"]
