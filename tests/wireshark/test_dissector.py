"""The dissector shows what the table of wire vectors says, verifies sums, reads reports and reassembles links."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from bccnd.core.formats import pcapng
from tests.support import PATIENCE, ROOT
from tests.vectors import DOORS, VECTORS, sealed

SCRIPT: Final = ROOT / "packaging" / "wireshark" / "bccn.lua"
#: verdicts under which a datagram is not what the protocol's format has; others are about rules of names
UNREADABLE: Final = {"bad_envelope", "length_mismatch", "bad_body", "bad_seq"}
GREETING: Final = b"\0SP\0\0\x70\0\0"
#: stands for Wireshark where an interpreter runs the script by itself
WIRESHARK: Final = """
local any = setmetatable({}, {})
getmetatable(any).__index = function() return any end
getmetatable(any).__call = function() return any end
for _, name in ipairs({'Proto', 'ProtoField', 'ProtoExpert', 'Pref', 'DissectorTable', 'expert', 'base'}) do
    _G[name] = any
end
"""
SUMS: Final = "for size = 0, 130 do print(crc32(('x'):rep(size)), short_hmac(('k'):rep(size), ('x'):rep(size))) end"

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")


def capture(path: Path, packets: Iterable[bytes]) -> Path:
    blocks = [pcapng.packet(0, 1_700_000_000 * 10**9 + number, data, "") for number, data in enumerate(packets)]
    path.write_bytes(pcapng.begin_section("test") + pcapng.describe_interface("lan") + b"".join(blocks))
    return path


def datagrams(path: Path, payloads: Iterable[bytes]) -> Path:
    return capture(path, (pcapng.udp_packet("10.0.0.7:40000", "10.0.0.255#5400", data) for data in payloads))


def dissect(path: Path, *options: str, key_files: Sequence[Path] = ()) -> list[dict[str, list[str]]]:
    """The fields of each packet, by their names."""
    keys = ",".join(map(str, key_files))
    command = ["tshark", "-X", f"lua_script:{SCRIPT}", "-o", f"bccn.key_files:{keys}", "-r", str(path), "-T", "ek"]
    done = subprocess.run([*command, *options], capture_output=True, timeout=PATIENCE, check=True)
    assert b"lua" not in done.stderr.lower(), done.stderr.decode()
    return [_fields(json.loads(line)["layers"]) for line in done.stdout.splitlines() if b'"layers"' in line]


def _fields(layers: Any) -> dict[str, list[str]]:
    """The fields of a packet, whatever they are within."""
    found: dict[str, list[str]] = {}
    for name, content in layers.items():
        for value in content if isinstance(content, list) else [content]:
            fields = _fields(value) if isinstance(value, dict) else {name: [str(value)]}
            for inner, values in fields.items():
                found.setdefault(inner, []).extend(values)
    return found


def field(packet: dict[str, list[str]], name: str) -> str | None:
    values = packet.get(f"bccn_bccn_{name.replace('.', '_')}")
    return None if values is None else values[0]


def is_malformed(packet: dict[str, list[str]]) -> bool:
    return any(name.startswith("bccn_") and "malformed" in name for name in packet)


def test_the_vectors_are_shown_as_their_table_has_them(tmp_path: Path) -> None:
    vectors = [vector for vector in VECTORS if vector.datagram]
    packets = dissect(datagrams(tmp_path / "vectors.pcapng", (vector.datagram for vector in vectors)))
    for vector, packet in zip(vectors, packets, strict=True):
        if vector.fields is None:
            assert is_malformed(packet) or vector.verdict not in UNREADABLE, vector
            continue
        src, seq, chan, payload, check = vector.fields
        assert not is_malformed(packet), vector
        shown = (field(packet, name) for name in ("src", "seq", "chan", "form"))
        assert tuple(shown) == (src.decode(), str(seq), chan.decode(), vector.fields.form), vector
        assert (field(packet, "payload") or "").replace(":", "") == payload.hex(), vector
        assert f"{field(packet, 'algo') or ''}={field(packet, 'sum') or ''}".strip("=") == check.decode().strip("=")


@pytest.mark.parametrize("door", [door for door in DOORS.values() if door.algorithm in ("hmac", "crc32")], ids=str)
def test_sums_are_verified(tmp_path: Path, door: Any) -> None:
    files = []
    for number, secret in enumerate(door.secrets):
        (path := tmp_path / f"key{number}").write_bytes(secret)
        files.append(path)
    vectors = [vector for vector in door.vectors if vector.check[0].decode() == door.algorithm]
    packets = dissect(datagrams(tmp_path / "x.pcapng", (vector.datagram for vector in vectors)), key_files=files)
    for vector, packet in zip(vectors, packets, strict=True):
        if vector.verdict in ("accepted", "integrity_failed"):
            assert field(packet, "sum_status") == str(int(vector.verdict == "accepted")), vector


def test_without_a_key_a_sum_is_neither_good_nor_bad(tmp_path: Path) -> None:
    body = b"a/b/1:1:c|x"
    sums = dissect(datagrams(tmp_path / "x.pcapng", [sealed("hmac-1", body), sealed("ed25519-1", body)]))
    assert [field(packet, "sum_status") for packet in sums] == ["2", "2"]
    (packet,) = dissect(datagrams(tmp_path / "y.pcapng", [sealed("hmac-1", body)]), key_files=[tmp_path / "none"])
    assert any("no_key" in name for name in packet)


def test_a_filter_finds_what_a_report_has_lost(tmp_path: Path) -> None:
    lines = "report 1 2.0 10000 1 1\nsent relay01/x/1 5 18446744073709551615\nheard relay02 17 10 {} 1 0\n"
    reports = [f"relay01/bccnd/7:{lost}:bccn/report/relay01|{lines.format(lost)}".encode() for lost in (0, 3)]
    path = datagrams(tmp_path / "x.pcapng", (sealed(None, body) for body in reports))
    (packet,) = dissect(path, "-Y", "bccn.report.lost > 0")
    names = ("sent", "next", "heard", "received", "lost", "late")
    shown = [field(packet, f"report_{name}") for name in names]
    assert shown == ["relay01/x/1", "18446744073709551615", "relay02", "10", "3", "1"]


def segments(stream: bytes, cuts: Sequence[int]) -> Iterable[bytes]:
    """A TCP stream, cut at these places, as packets with IP headers."""
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        tcp = struct.pack(">HHIIBBHHH", 40000, 5410, 1000 + start, 1, 5 << 4, 0x18, 65535, 0, 0) + stream[start:end]
        head = struct.pack(
            ">BBHIBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 64, 6, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
        )
        yield head + tcp


def test_datagrams_of_a_link_are_reassembled(tmp_path: Path) -> None:
    messages = [sealed("crc32", b"relay01/x/1:%d:a/b|%b" % (number, bytes(400))) for number in range(5)]
    stream = GREETING + b"".join(struct.pack(">Q", len(message)) + message for message in messages)
    packets = dissect(capture(tmp_path / "x.pcapng", segments(stream, [8, 300, 303, 900])))
    seqs = [seq for packet in packets for seq in packet.get("bccn_bccn_seq", [])]
    assert seqs == ["0", "1", "2", "3", "4"]
    assert not any(map(is_malformed, packets))


@pytest.mark.parametrize("interpreter", ["lua5.2", "lua5.4"])
def test_sums_are_the_same_in_every_lua(tmp_path: Path, interpreter: str) -> None:
    if shutil.which(interpreter) is None:
        pytest.skip(f"needs {interpreter}")
    (script := tmp_path / "sums.lua").write_text(WIRESHARK + SCRIPT.read_text() + SUMS)
    done = subprocess.run([interpreter, script], capture_output=True, text=True, timeout=PATIENCE, check=True)
    expected = [
        f"{zlib.crc32(b'x' * size):08x}\t{hmac.new(b'k' * size, b'x' * size, hashlib.sha256).hexdigest()[:16]}"
        for size in range(131)
    ]
    assert done.stdout.splitlines() == expected
