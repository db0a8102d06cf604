"""The commands of the documents that are for a booted host, as they are written, on one with the package."""

from __future__ import annotations

import json
import re
import shlex
from typing import Final

import pytest

from tests.docs.pages import Block, commands, read_page
from tests.systemd.conftest import Hosts
from tests.systemd.host import Host
from tests.systemd.recorders import give_pyarrow

#: what the package is called where `make deb` has built it, on the page
_BUILT: Final = re.compile(r"make deb && |^make deb\b.*$")
#: what no host of the tests has, which has no network, and what stands in for it
_EDITOR: Final = '#!/bin/sh\ntest -e "$1"\n'
_CURL: Final = """#!/usr/bin/python3
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[-1]).read().decode(), end="")
"""


#: the blocks that are run, by the beginning of their first lines
BLOCKS: Final = {
    "README.md": ("make deb &&",),
    "docs/links.md": ("systemctl enable --now bccnd-nng",),
    "docs/log.md": ("journalctl -u bccnd",),
    "docs/operations.md": (
        *("bccn doctor", "curl -s http://127.0.0.1:9540/metrics > /tmp", "make deb", "bccnd --check"),
        "systemctl stop 'bccnd*'",
    ),
    "docs/pipeline.md": ("systemctl enable --now bccnd-pipeline.timer",),
    "docs/recorder.md": ("systemctl enable --now bccnd-recorder",),
    "docs/runbook.md": ("systemctl status bccnd", "journalctl BCCND_DROP=queue_messages --since -1h"),
    "docs/systemd.md": (
        *("systemctl stop 'bccnd*'", "systemctl enable --now bccnd-recorder"),
        *("systemctl enable --now bccnd-broker bccnd-nng", "systemctl edit bccnd", "systemctl status bccnd"),
    ),
    "docs/upgrades.md": ("apt install ./bccnd_NEW_amd64.deb",),
}
#: what those take for granted that start gateways
_GATEWAYS: Final = {
    "gateways": {"broker": {"tcp": "127.0.0.1:5401"}, "nng": {"listen": ["tcp://127.0.0.1:5402"]}},
}


@pytest.mark.parametrize("document", BLOCKS)
def test_what_a_document_says_can_be_done_on_a_booted_host(hosts: Hosts, document: str) -> None:
    hosts.wire("a")
    shell = [one for one in read_page(document)[0] if one.kind == "sh"]
    blocks = [next(one for one in shell if one.text.startswith(first)) for first in BLOCKS[document]]
    # Where the page begins with installing the package, there is none yet.
    installs = "apt install" in blocks[0].text
    host = hosts.host("a", bare=True) if installs else hosts.ready("a", {"integrity": {"algorithm": "none"}})
    if installs:
        host.boot()
    prepare(host)
    if any("status bccnd-recorder" in block.text for block in blocks):
        give_pyarrow(host)
    for block in blocks:
        if "bccnd-nng" in block.text and "enable" in block.text:
            host.write("/etc/bccnd/bccnd.yaml", json.dumps(_GATEWAYS))
            host.run("systemctl", "restart", "bccnd")
        follow(host, block)


def prepare(host: Host) -> None:
    host.write("/usr/local/bin/editor", _EDITOR, 0o755)
    host.write("/usr/local/bin/curl", _CURL, 0o755)
    # Whoever sits there says yes.
    host.write("/etc/apt/apt.conf.d/99yes", 'APT::Get::Assume-Yes "true";')
    host.run("useradd", "--create-home", "ann")
    host.run("mkdir", "-p", "/root/dist")
    machine = host.run("dpkg", "--print-architecture").strip()
    for package, name in (("old", "dist/bccnd_1.2.0"), ("old", "bccnd_OLD"), ("new", "bccnd_NEW")):
        host.run("cp", f"/packages/{package}.deb", f"/root/{name}_{machine}.deb")


def follow(host: Host, block: Block) -> None:
    """One shell for the block; a command that fails names itself."""
    lines = ["cd /root", "export SYSTEMD_PAGER= SYSTEMD_EDITOR=true EDITOR=true DEBIAN_FRONTEND=noninteractive"]
    for command in commands(block):
        # The packages fixture has done that.
        text = _BUILT.sub("", command.text)
        if text.startswith("systemctl edit"):  # it talks to terminals only
            text = f"script -qec {shlex.quote(text)} /dev/null"
        where = f"{block.page}:{command.line}"
        lines.append(f"{{ {text}\n}}" if text.strip() else ":")
        lines.append(
            f'status=$?; [ $status -eq {command.status} ] || {{ echo "{where} ended with status $status"; exit 99; }}'
        )
        if command.stays:
            lines.append("sleep 2")
    lines += ["sleep 0.5", "kill $(jobs -p) 2>/dev/null", "true"]
    output = host.run("bash", "-c", "\n".join(lines), timeout=180)
    for command in commands(block):
        if command.shows:
            found = re.search(command.shows, output, re.MULTILINE)
            assert found, f"{block.page}:{command.line}: {command.shows}\n{output}"
