"""The guide for clients: its frames are those of the code, and its session is what a daemon says."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Final

import pytest

from bccnd.core import frames
from tests.e2e.harness import PATIENCE, Daemon
from tests.support import ROOT

GUIDE: Final = (ROOT / "docs/clients.md").read_text()
FRAMES: Final = {
    "`SUB demo/`": frames.subscribe(b"demo/"),
    "`UNSUB demo/`": frames.unsubscribe(b"demo/"),
    "`MSG demo/t1` with the payload `21.5`": frames.message(b"demo/t1", b"21.5"),
    "`MSG demo/t1` with an empty payload": frames.message(b"demo/t1", b""),
    "`CMSG !/bccn/whoami` without a payload": frames.request(frames.WHOAMI),
    "`CMSG !/bccn/sync` with the payload `7`": frames.request(frames.SYNC, b"7"),
    "`CMSG !/bccn/gap` with the payload `12`, from the daemon": frames.gap(12),
}


def test_every_frame_of_the_table_is_that_of_the_code() -> None:
    table = dict(re.findall(r"^\| (`.*?) \| `((?:[0-9a-f]{2} ?)+)` \|$", GUIDE, re.MULTILINE))
    assert {what: bytes.fromhex(shown) for what, shown in table.items()} == FRAMES


def test_the_batch_is_that_of_the_code() -> None:
    lines = re.findall(r"^((?:[0-9a-f]{2} +)+) {2,}\S.*$", GUIDE, re.MULTILINE)
    assert len(lines) == 3
    shown = bytes.fromhex("".join(lines).replace(" ", ""))
    assert shown == frames.batch([frames.message(b"a", b"1"), frames.message(b"b", b"22")])


def test_the_sizes_are_those_of_the_code() -> None:
    header = (ROOT / "examples/c/bccn.h").read_text()
    assert f"{frames.MAX_PACKET:,} bytes" in GUIDE
    assert f"#define BCCN_BUFFER (BCCN_MAX_PACKET + {413_696 - frames.MAX_PACKET})" in header
    assert "413,696 bytes" in GUIDE
    assert frames.MAX_BATCH == 64 << 10


def packet(text: str) -> bytes:
    """A packet as the guide writes it."""
    return text.replace("\\0", "\\x00").encode().decode("unicode_escape").encode("latin-1")


def session() -> list[tuple[str, bytes]]:
    return [(line[0], packet(line[2:])) for line in GUIDE.splitlines() if re.match(r"[<>] \S", line)]


def test_a_daemon_says_what_the_session_says(tmp_path: Path) -> None:
    steps = session()
    assert len(steps) > 18
    with Daemon(tmp_path / "a") as daemon, daemon.raw() as bus:
        name = Path("/proc/self/comm").read_bytes().strip()
        for number, (way, text) in enumerate(steps):
            if way == ">":
                bus.send(text)
                continue
            parts = text.replace(b"/client/", b"/%b/" % name).split(b"...")
            wanted = rb"\d+".join(map(re.escape, parts))
            got = bus.recv(65_536)
            assert re.fullmatch(wanted, got, re.DOTALL), (number, text, got)
        bus.send(b"CMSG !/bccn/sync\0the end")
        assert bus.recv(65_536) == b"CMSG !/bccn/sync\0the end"


def test_a_packet_larger_than_the_buffer_loses_its_end(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon, daemon.raw() as bus:
        bus.send(b"SUB demo/")
        bus.send(b"MSG demo/x\x000123456789")
        got, _, flags, _ = bus.recvmsg(15)
        assert got == b"MSG demo/x\x000123"
        assert flags & socket.MSG_TRUNC


def test_what_is_larger_than_the_kernel_takes_needs_room(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon, daemon.raw() as bus:
        large = b"MSG demo/x\0" + b"x" * 300_000
        with pytest.raises(OSError, match="too long"):
            bus.send(large)
        bus.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, frames.MAX_PACKET)
        bus.settimeout(PATIENCE)
        assert bus.send(large) == len(large)


def test_the_end_is_no_packet(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a")
    with daemon, daemon.raw() as bus:
        bus.send(b"CMSG !/bccn/sync\0x")
        assert bus.recv(100) == b"CMSG !/bccn/sync\0x"
        daemon.stop()
        assert bus.recv(100) == b""
