"""The first inputs of each target: `python -m tests.fuzz.seeds` writes those into the corpus that are not there yet.

They come from the vectors, and by hand where there are none: one of each kind of thing that a target reads, so that
fuzzing begins where the reading gets interesting.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bccnd.core import frames, tape
from bccnd.gateways import broker_codec, broker_state
from bccnd.gateways.broker_sessions import Record
from bccnd.recorder import rows as packed
from tests import vectors
from tests.core import captures
from tests.fuzz.targets import files
from tests.support import ROOT

CORPUS: Final = ROOT / "tests" / "fuzz" / "corpus"


def datagrams() -> Iterator[bytes]:
    """Of the vectors, which have tests of their own, as many as make a beginning."""
    for vector in vectors.VECTORS[::2]:
        yield vector.datagram
    for _, vector in vectors.AT_DOORS[::8]:
        yield vector.datagram


def packets() -> Iterator[bytes]:
    """What clients send: every request, and every kind of mistake."""
    controls = (
        *(b"!/cred/whoami", b"!/bccn/whoami", b"!/bccn/sync\0token", b"!/bccn/meta/on", b"!/bccn/meta/off"),
        *(b"!/bccn/batch/on", b"!/bccn/batch/off", b"!/bccn/local/on", b"!/bccn/local/off", b"!/bccn/stats"),
        *(b"!/bccn/stats\0sources", b"!/bccn/stats\0clients", b"!/bccn/stats\0users", b"!/bccn/tag\0blue"),
        *(b"!/bccn/tag\0a/b", b"!/bccn/tag\0", b"!/bccn/trace\0BCCN1[7]a:1:b|xy", b"!/bccn/dialect\0broker"),
        *(
            b"!/bccn/dialect\0sbus-dot",
            b"!/bccn/dialect\0none",
            b"!/bccn/gateway\0{}",
            b'!/bccn/gateway\0{"gateway":1}',
        ),
        *(b"echo/on", b"echo/off", b"blocking/soft/queue", b"blocking/soft/discard", b"blocking/soft/error"),
        *(b"blocking/hard/discard", b"blocking/hard/error", b"order/queue", b"order/stack", b"order/random"),
        *(b"order/none", b"echo/", b"!/bccn/error\0x", b"", b"\xff", b"nothing/known\0\0"),
    )
    for one in controls:
        yield b"CMSG " + one
    for pattern in (b"", b"a", b"a/", b"a/*", b"a/>", b">", b"*", b"!/", b"!/tap/", b"!/tap/accepted", b"!/tap/none"):
        yield frames.subscribe(pattern)
        yield frames.unsubscribe(pattern)
    yield from (b"SUB a\0b\0c/", b"SUB !/cred///1/x", b"SUB !/cred/0/0//a/", b"SUB !/link/", b"SUB !/link/here")
    for key in (b"a/b", b"!", b"!relay01", b"!relay01/*", b"!?", b"!/own/a", b"!/bccn/x", b"!/tap/x", b"!/cred/0/0//a"):
        yield frames.message(key, b"payload")
    yield from (frames.message(b"a", bytes(1500)), frames.message(b"a b", b""), frames.message(b"", b""))
    yield frames.message(frames.LINK, b"0:nng:7:1700000000000000000:192.0.2.1:1|BCCN1[7]a:1:b|xy")
    yield frames.arrived("nng", 7, 1_700_000_000_000_000_000, "192.0.2.1:1", b"BCCN1[7]a:1:b|xy")
    yield from (b"", b"MSG", b"MSG a", b"SUB", b"CMSG", b"MSGS 1\0", b"sub a", b"MSG  a\0b", b"\0", b"UNSUB")


def broker_bytes() -> Iterator[bytes]:
    """What a subscriber sends, from its id on; and publications."""
    hello = broker_codec.hello(b"id")
    for topics in ((b"a",), (b"a/+", b"*"), (b"a/*/b", b"a/*/b", b"x" * 50), (b"",), (b"x" * 51,)):
        yield hello + b"".join(broker_codec.request(broker_codec.SUBSCRIBE, topic) for topic in topics)
    yield hello + broker_codec.request(0, b"a") + broker_codec.request(1, b"a") + broker_codec.request(2)
    yield hello + broker_codec.request(1, b"never") + broker_codec.request(2) + b"more"
    yield from (hello, bytes(11), bytes(63), b"\xff" * 11, hello + b"\x03" + bytes(51), b"long id of 11" + bytes(40))


def requests() -> Iterator[bytes]:
    """What visitors send."""
    for path in (b"/", b"/metrics", b"/healthz", b"/none", b"/%00", b"*", b"/metrics?a=b#c"):
        yield b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path
    yield b"HEAD / HTTP/1.0\r\n\r\n"
    yield b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    yield b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    yield b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n"
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield from (b"GET / HTTP/1.1\r\n\r\n", b"GET\r\n\r\n", b"\xff\xfe\r\n\r\n", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n")
    yield b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"
    yield b"OPTIONS * HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"


def publications() -> Iterator[bytes]:
    found = json.loads((ROOT / "tests" / "vectors" / "broker.json").read_text())
    for one in found["values"]:
        kind = broker_codec.TYPE_NAMES.index(one["type"]) if one["type"] in broker_codec.TYPE_NAMES else 7
        yield broker_codec.publication(b"a/b", kind, bytes.fromhex(one["content"]))
    yield from (bytes(50), bytes(51), broker_codec.publication(b"!", 3, b"x"), b"\xff" * 60, bytes(1551), bytes(1552))


def links() -> Iterator[bytes]:
    """Frames of links, of both directions."""
    raw = b"BCCN1[7]a:1:b|xy"
    yield frames.passed(0, raw)
    yield frames.passed(7, raw)
    yield frames.arrived("nng", 7, 1_700_000_000_000_000_000, "192.0.2.1:1", raw)
    yield frames.tapped("accepted", "one", 1, 1_700_000_000_000_000_000, "192.0.2.1:1", raw)
    yield frames.batch([frames.passed(0, raw)] * 3)
    yield frames.message(b"a/b", frames.meta(b"a", 1, 1_700_000_000_000_000_000, "[::1]:1") + b"xy")
    yield frames.gap(7)
    yield frames.error("not_permitted", b"a")
    yield struct.pack(">Q", len(raw)) + raw


def streams() -> Iterator[bytes]:
    """Steps of four bytes behind one: see `targets.segment.stream`."""
    for rules in range(4):
        yield bytes([rules]) + b"".join(struct.pack("<BBH", 0, 0, step) for step in (1, 1, 0, 3, 65_535, 1, 100, 1))
        yield bytes([rules]) + b"".join(struct.pack("<BBH", 0xA8 | n & 7, n & 7, 1) for n in range(16))
        yield bytes([rules]) + b"".join(struct.pack("<BBH", n & 1, 0x48 | n & 0x30, 1) for n in range(12))
        yield bytes([rules]) + b"".join(struct.pack("<BBH", 0x88, 5 if n % 2 else 0, 1) for n in range(12))


def pattern_pairs() -> Iterator[bytes]:
    for dialect in range(4):
        for pair in (
            b"a/*\na/b\na/b",
            b"a/>\na/\na/b/c",
            b">\n*\na",
            b"a*/b\nab/*\nab/b",
            b"+/b\n*/b\na/b",
            b"a.*\na.b\na.b",
        ):
            yield bytes([dialect]) + pair


def states() -> Iterator[bytes]:
    yield from (b"{}", b"[]", b"\xff", b'{"format":1,"ids":[]}', b'{"format":"x"}')
    record = Record(b"id", 1.0, (b"a", b"b/+", b"*"))
    yield broker_state.dump([record])
    yield broker_state.dump([record._replace(name=b"%d" % n) for n in range(6)])


def captures_made() -> Iterator[bytes]:
    inside = captures.udp(b"BCCN1[7]a:1:b|xy")
    packet = captures.ipv4(inside)
    framed = {
        1: (captures.ether(packet), captures.ether(packet, tags=(0x8100,)), captures.ether(captures.ipv6(inside))),
        0: (captures.null(packet),),
        101: (packet, captures.ipv6(inside, extensions=((0, bytes(7)),)), captures.ipv4(inside, fragment=0x2000)),
        113: (captures.sll(packet),),
        276: (captures.sll2(packet),),
    }
    for link, each in framed.items():
        found = [captures.Frame(10**18, one) for one in each]
        for order in "<>":
            yield captures.pcap(found, order=order, link=link)
            yield captures.pcapng(found, order=order, link=link)
    yield captures.pcap([])
    yield captures.section() + captures.interface(resolution=9, offset=5) + captures.statistics(3)


def logs() -> Iterator[bytes]:
    tap = frames.tapped("accepted", "one", 1, 1_700_000_000_000_000_000, "192.0.2.1:1", b"BCCN1[7]a:1:b|xy")
    for flags in (0, 1, 2 | 0x50, 4 | 0x30, 8):
        yield bytes([flags, 0, len(tap)]) + tap + b"\x02\x10" + struct.pack("<QQ", 5, 6) + b"\x00\x05other"


def rows() -> Iterator[bytes]:
    tap = frames.tapped("accepted", "one", 1, 1_700_000_000_000_000_000, "192.0.2.1:1", b"BCCN1[7]a:1:b|xy")
    yield from (tap, frames.batch([tap, tap]), frames.gap(3), packed.pack(packed.observations(tap) * 2))


def configurations() -> Iterator[bytes]:
    sample = (ROOT / "etc" / "bccnd.yaml").read_text()
    lines = "\n".join(line for line in sample.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    yield lines.encode()
    for text in (
        "host: relay01",
        "segments: [{address: 255.255.255.255, port: 5400, bind: 0.0.0.0}]",
        "integrity: {algorithm: hmac, keys: [/k], required: true}",
        "dedup: {sanity: 1024, horizon: 2s, late: drop, freshness: restart, expire: 24h}",
        'bus: {mode: "0660", dialect: path, queue: {messages: 1024, bytes: 4MiB}, user: {rate: 5}}',
        'access: [{group: bccn, publish: [""], subscribe: ["a/"]}, {user: 0, tap: true}]',
        "repeat: [{channels: a/, copies: 2, spacing: 2ms}]\nheartbeat: {interval: 5s}",
        "metrics: {listen: 127.0.0.1:9540, groups: {a: a/}}",
        "gateways: {nng: {listen: ['tcp://[::1]:1'], dial: [tls+tcp://h:1]}, broker: {tcp: 127.0.0.1:1}}",
        "recorder: {journal: /j, rotate: 60s, payload: [{channels: a, keep: hash}]}",
        "a: &a [*a]\nb: {<<: *a}",
        "%YAML 1.1\n--- !!python/object:os.x {}\n",
        "{a: 1, a: 2}",
        "- - - -\n",
        "host: 2001-01-01\nbus: 0x10\n? [a]\n: b",
    ):
        yield text.encode()


def typed() -> Iterator[bytes]:
    yield from (b"BCCN1[7]a:1:b|xy\n", b"BCCN1[7]a:1:b|xy", b"42:43 43 4e", b"4\n", b"\n", b"[7]\n")


def tapes() -> Iterator[bytes]:
    each = [tape.record(tape.HOLDS, b"a/", 2), tape.record(tape.ASKED, b"CMSG echo/off"), tape.lost(3, 2, 1)]
    each += [tape.record(tape.PUT, b"MSG a\0x", 1, 2), tape.record(99), tape.counts(published=3, lost=1)]
    yield tape.head(program="p", started=1) + b"".join(each)
    yield b"\x01" + b"".join(each)
    yield b"\x01" + b"".join(each)[:-3]


def annals_made() -> Iterator[bytes]:
    """Notes of every kind."""
    plain = b"\x07a/p/1:5"[:8] + b"\x07a/p/1:9"[:8]
    kinds = [struct.pack("=BH", kind, 4) + b"\1abc" for kind in range(240, 248)]
    times = struct.pack("=ddd", 1.0, 1.0, 1.0)
    source = struct.pack("=QQdddddiBBH", 5, 9, 4.0, 4.0, 0.0, 0.0, 0.0, 1, 0, 5, 1) + b"a/p/1\1\2"
    own = struct.pack("=dQQ", float("inf"), 5, 9) + b"own/p/1"
    for note in (*kinds, plain):
        yield b"\x01" + note
    for kind, body in ((243, times + b"dead"), (244, struct.pack("=d", 4.0) + b"key"), (245, own), (246, source)):
        yield b"\x01" + struct.pack("=BH", kind, len(body)) + body


def ledgers() -> Iterator[bytes]:
    whole = struct.pack("=4Q", 7, 1, 1, 0)
    yield b"\0\0" + bytes([len(whole)]) + whole
    yield (
        b"\0\0"
        + bytes([32])
        + struct.pack("=4Q", 7, 1, 2, 0)
        + b"\x06\x07\x04"
        + struct.pack("=I", 5)
        + b"\x07\0\x05SUB a"
    )
    yield b"\x01\0" + bytes([48]) + struct.pack("=6Q", 1, 1, 0, 0, 2, 0)
    yield b"\0\0" + bytes([32]) + struct.pack("=4Q", 7, 1, 1, 0) + b"\x08\0\x04" + struct.pack("=HH", 16, 100)


def name_of(data: bytes) -> str:
    """The name of an input's file: what it holds."""
    return hashlib.sha256(data).hexdigest()[:12]


def write(target: str, inputs: Iterator[bytes], corpus: Path = CORPUS) -> int:
    folder = corpus / target
    folder.mkdir(parents=True, exist_ok=True)
    new = {name_of(one): one for one in inputs}
    for name, data in new.items():
        (folder / name).write_bytes(data)
    return len(new)


def sessions() -> Iterator[bytes]:
    yield files.make_sessions()


SEEDS: Final[dict[str, Callable[[], Iterator[bytes]]]] = {
    "datagram": datagrams,
    "frames": packets,
    "broker": broker_bytes,
    "publication": publications,
    "http": requests,
    "client": links,
    "link": links,
    "line": links,
    "stream": streams,
    "patterns": pattern_pairs,
    "brokerstate": states,
    "capture": captures_made,
    "log": logs,
    "rows": rows,
    "configuration": configurations,
    "trace": typed,
    "tape": tapes,
    "annals": annals_made,
    "ledger": ledgers,
    "sessions": sessions,
}


def main() -> None:
    for target, inputs in SEEDS.items():
        print(f"{write(target, inputs()):5d}  {target}")


if __name__ == "__main__":
    main()
