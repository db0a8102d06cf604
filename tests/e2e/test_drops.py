"""What is dropped is dropped for real here: page, metrics and log give it one name and one count."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Final

from bccnd.drop_catalog.drops import DROPS
from bccnd.drop_catalog.entry import Drop
from tests.e2e.harness import KEY, Daemon, Wire, datagram, wait
from tests.e2e.shared import BY_VERDICT
from tests.prometheus import metric

BY_KEY: Final = {f"{drop.family}/{drop.name}": drop for drop in DROPS}
#: what the tests below bring about: some of each kind, as the tests of the parts bring about every one
OF_THE_DAEMON: Final = {
    *(f"datagrams/{verdict}" for verdict in (*BY_VERDICT, "looped") if f"datagrams/{verdict}" in BY_KEY),
    *(f"client_errors/{name}" for name in ("empty", "not_permitted", "bad_channel", "too_long")),
    "identity_conflicts/identity_conflicts",
}


def in_metrics(daemon: Daemon) -> dict[str, int]:
    """All that the metrics count and that is not zero, over all places."""
    page = daemon.page("/metrics")

    def count(drop: Drop) -> int:
        return int(metric(page, f"{drop.family}_total", **({drop.label: drop.name} if drop.label else {})))

    return {key: count(drop) for key, drop in BY_KEY.items() if count(drop)}


def on_page(daemon: Daemon) -> dict[str, int]:
    """All that the status page shows, by name and count; its own tests have each in its place."""
    found: Counter[str] = Counter()
    for row in json.loads(daemon.page("/status.json"))["drops"]:
        family = row["metric"].removeprefix("bccnd_").partition("_total")[0]
        found[f"{family}/{row['name']}"] += row["times"]
    return {key: count for key, count in found.items() if count and key in BY_KEY}


def logged(daemon: Daemon, keys: set[str]) -> bool:
    """Whether each of these that is serious has a warning in the log."""
    serious = [BY_KEY[key].name for key in keys if BY_KEY[key].serious]
    return all(re.search(rf"warning: .*\({name}\)", daemon.output()) for name in serious)


def test_drops_of_a_daemon_have_one_name_and_one_count(signed: Daemon) -> None:
    with Wire(signed.port) as wire, signed.connect("x") as client, signed.raw() as sock:
        wire.send(*BY_VERDICT.values(), datagram(client.identity(), 1, "x", key=KEY))
        client.publish("x", b"comes back")
        for frame in (b"", b"SUB !/cred/1/2/3/x", b"MSG no channel\0", b"MSG a\0" + b"y" * 1450):
            sock.send(frame)
        wait(lambda: set(in_metrics(signed)) == OF_THE_DAEMON, "everything to be counted")
        assert on_page(signed) == in_metrics(signed)
        wait(lambda: logged(signed, OF_THE_DAEMON), "a line for each")
