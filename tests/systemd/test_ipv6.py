"""A segment by IPv6 multicast between booted hosts, set up with the lines of docs/network.md."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any, Final

import yaml

from tests.docs.pages import read_page
from tests.support import cannot_here
from tests.systemd import load
from tests.systemd.conftest import Hosts
from tests.systemd.host import Host, wait
from tests.systemd.network import Segment

PAGE: Final = "docs/network.md"
MESSAGES: Final = 20
#: lets in what the page says, and what stays on the host
_FILTER: Final = """table inet bccnd {{
    chain input {{
        type filter hook input priority 0; policy drop;
        iif lo accept
        {rule}
    }}
}}
"""
_NFT: Final = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin:/bin")


def documented() -> tuple[dict[str, Any], str, str, str]:
    """The configuration, the path and text of the drop-in, and the rule for nftables; all for `lan0`."""
    blocks, text = read_page(PAGE)
    settings = next(yaml.safe_load(block.text) for block in blocks if block.kind == "yaml" and "ff02" in block.text)
    (drop_in,) = (block.text for block in blocks if block.kind == "ini")
    (rule,) = re.findall(r"`(ip6 saddr [^`]+)`", text)
    for segment in settings["segments"]:
        segment["interface"] = "lan0"
    path = drop_in.partition("\n")[0].removeprefix("# ")
    return settings, path, drop_in.replace("eth0", "lan0"), rule


def filter_input(segment: Segment, letter: str, rule: str) -> None:
    if _NFT is None:
        cannot_here("there is no nft: apt-get install nftables")
    words = [*segment.on(letter), _NFT, "-f", "-"]
    subprocess.run(words, input=_FILTER.format(rule=rule), text=True, check=True, timeout=30)


def exchange(a: Host, b: Host) -> None:
    """Messages of a program of each host reach a program of the other one, each once."""
    with (
        load.witness(a) as at_a,
        load.witness(b) as at_b,
        load.local_speaker(a, 0, 100, "-n", str(MESSAGES)) as of_a,
        load.local_speaker(b, 1, 100, "-n", str(MESSAGES)) as of_b,
    ):
        sent = {speaker.finish(ask=False)["id"]: MESSAGES for speaker in (of_a, of_b)}
        assert list(sent) == [0, 1]
        for witness in (at_a, at_b):
            wait(lambda witness=witness: not load.faults(witness.report(), sent), "all messages, each once", 20)  # type: ignore[misc]


def test_two_hosts_exchange_messages_over_ipv6_multicast(hosts: Hosts) -> None:
    settings, path, drop_in, rule = documented()
    segment = hosts.wire("ab")
    for letter in "ab":
        filter_input(segment, letter, rule)
    # One host is changed while it runs, the other one has the files when it boots.
    a, b = hosts.ready("a"), hosts.host("b")
    for host in (a, b):
        hosts.configure(host, settings)
        host.write(path, drop_in)
    b.boot()
    b.wait_active()
    a.run("sh", "-c", "systemctl stop 'bccnd*'; systemctl daemon-reload; systemctl start bccnd")
    a.wait_active()
    exchange(a, b)
    for host in (a, b):
        assert host.metric("datagrams_sent_total", segment="lan0/ff02--bcc#5400") >= MESSAGES
        host.run("systemctl", "restart", "bccnd")
        host.wait_active()
    exchange(a, b)
