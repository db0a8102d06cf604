"""The commands of the documents that are for a booted host, as they are written, on one with the package."""

from __future__ import annotations

import re
import shlex
from typing import Final

import pytest

from tests.docs.blocks import Block, commands, pattern
from tests.docs.follow import blocks_of, documents
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


def booted(document: str) -> list[Block]:
    return [one for one in blocks_of(document) if one.kind == "sh" and one.mark("run") == "booted"]


@pytest.mark.parametrize("document", [one for one in documents() if booted(one)])
def test_what_a_document_says_can_be_done_on_a_booted_host(hosts: Hosts, document: str) -> None:
    hosts.wire("a")
    blocks = booted(document)
    # Where the page begins with installing the package, there is none yet.
    installs = "apt install" in blocks[0].text
    host = hosts.host("a", bare=True) if installs else hosts.ready("a", {"integrity": {"algorithm": "none"}})
    if installs:
        host.boot()
    prepare(host)
    if any("status bccnd-recorder" in block.text for block in blocks):
        give_pyarrow(host)
    for block in blocks:
        if (before := block.mark("prepare")) is not None:
            host.run("bash", "-c", before)
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
        where = f"{block.document}:{command.line}"
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
            assert pattern(command.shows).search(output), f"{block.document}:{command.line}: {command.shows}\n{output}"
    if block.shows:
        assert pattern(block.shows, alike=block.mark("shows") == "alike").search(output), f"{block.where}:\n{output}"
