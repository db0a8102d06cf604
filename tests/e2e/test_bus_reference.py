"""The reference of the bus: its frames are those of the code, and its session is what a daemon says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from bccnd.core.wire import frames
from tests.e2e.harness import Daemon
from tests.support import ROOT

GUIDE: Final = (ROOT / "docs/bus.md").read_text()
FRAMES: Final = {
    "`SUB demo/`": frames.subscribe(b"demo/"),
    "`UNSUB demo/`": frames.unsubscribe(b"demo/"),
    "`MSG demo/t1` with the payload `21.5`": frames.message(b"demo/t1", b"21.5"),
    "`MSG demo/t1` with an empty payload": frames.message(b"demo/t1", b""),
    "`CMSG !/bccn/whoami` without a payload": frames.request(frames.WHOAMI),
    "`CMSG !/bccn/sync` with the payload `7`": frames.request(frames.SYNC, b"7"),
    "`CMSG !/bccn/gap` with the payload `12`, from the daemon": frames.gap(12),
}


def test_frames_and_sizes_are_those_of_the_code() -> None:
    table = dict(re.findall(r"^\| (`.*?) \| `((?:[0-9a-f]{2} ?)+)` \|$", GUIDE, re.MULTILINE))
    assert {what: bytes.fromhex(shown) for what, shown in table.items()} == FRAMES
    lines = re.findall(r"^((?:[0-9a-f]{2} +)+) {2,}\S.*$", GUIDE, re.MULTILINE)
    assert len(lines) == 3
    shown = bytes.fromhex("".join(lines).replace(" ", ""))
    assert shown == frames.batch([frames.message(b"a", b"1"), frames.message(b"b", b"22")])
    assert f"{frames.MAX_PACKET:,} bytes" in GUIDE
    header = (ROOT / "examples/c/bccn.h").read_text()
    (most,) = re.findall(r"#define BCCN_MAX_PACKET (\d+)", header)
    assert int(most) == frames.MAX_PACKET


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
