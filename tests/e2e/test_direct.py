"""Without a daemon and beside one: `bccn direct`, its keys, and an Endpoint on the segment that a daemon serves."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import bccnd
from bccnd.cli.messages.direct import select_messages
from tests.e2e.harness import BIN, KEY, PATIENCE, Daemon, Wire, bccn, datagram, payloads, wait
from tests.e2e.listener import Listener
from tests.support import BROADCAST, free_port


def send(port: int, *datagrams: bytes) -> None:
    """Send from a socket that nothing is received at."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for one in datagrams:
            sock.sendto(one, (BROADCAST, port))


def sub(port: int, *arguments: str | Path, address: str = BROADCAST, on: Sequence[str] = ()) -> Listener:
    """A `bccn direct sub` that listens when this has been made."""
    return Listener(port, [*on, str(BIN / "bccn"), "direct", "sub", "--segment", f"{address}:{port}", *arguments])


def direct(port: int) -> list[str]:
    return ["--segment", f"{BROADCAST}:{port}"]


def key_file(path: Path, key: bytes = KEY, mode: int = 0o600) -> Path:
    path.write_bytes(key + b"\n")
    path.chmod(mode)
    return path


def key_pair(folder: Path, name: str) -> Path:
    """A private key, with its public half in NAME.pub."""
    assert bccn("keygen", "--algorithm", "sig", folder / name).returncode == 0
    return folder / name


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def ear(port: int) -> Iterator[bccnd.Endpoint]:
    """Another program of the segment, which receives what the tool publishes."""
    with bccnd.Endpoint("h/ear/1", BROADCAST, port) as endpoint:
        yield endpoint


def heard(endpoint: bccnd.Endpoint) -> bccnd.Message:
    message = endpoint.recv(PATIENCE)
    assert message is not None, "waited in vain for a message"
    return message


def test_pub_sends_arguments_and_lines_under_a_name(port: int, ear: bccnd.Endpoint) -> None:
    cases: list[tuple[list[str], str, str, str]] = [
        ([], "demo/hello", "hello, world", r"[^/]+/bccn/\d+"),
        (["--name", "my/own/name"], "!", "to all", "my/own/name"),
        (["--name", ""], "x", "", r"\?"),
    ]
    for options, chan, payload, src in cases:
        done = bccn("direct", "pub", *direct(port), *options, chan, payload)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        message = heard(ear)
        assert (message.chan, message.payload) == (chan, payload.encode())
        assert re.fullmatch(src, message.src)
    lines = [b"one", b"", b"three | with : marks", "fünf".encode(), b"\xff\0raw", b"without an end"]
    assert bccn("direct", "pub", *direct(port), "x", stdin=b"\n".join(lines)).returncode == 0
    found = [heard(ear) for _ in lines]
    assert [one.payload for one in found] == lines
    assert len({one.src for one in found}) == 1
    # What cannot be sent ends it.
    done = bccn("direct", "pub", *direct(port), "x", stdin=b"good\n" + b"." * 1400 + b"\nnever sent\n")
    assert (done.returncode, b"1400" in done.stderr) == (1, True)
    for channel in ("two words", "a:b", "", "!?"):
        assert bccn("direct", "pub", *direct(port), channel, "x").returncode == 1
    assert bccn("direct", "pub", *direct(port), "x", "the end").returncode == 0
    assert [heard(ear).payload for _ in range(2)] == [b"good", b"the end"]


def test_sub_prints_what_is_for_it_once_and_harmless(port: int) -> None:
    chans = ["a/x", "a", "b/1/c", "b/c", "!", "!h/sub/7", "!h/sub/7/*", "!h", "!i", "a/end"]
    wanted = ["a/x", "b/1/c", "!", "!h/sub/7", "!h/sub/7/*", "!h", "a/end"]
    with sub(port, "a/", "b/*/c", "--name", "h/sub/7") as process:
        send(port, *(datagram("h/wire/1", seq, chan, chan) for seq, chan in enumerate(chans)))
        assert [process.until(b"\n") for _ in wanted] == [f"{chan} {chan}\n".encode() for chan in wanted]
        one, two = datagram("h/p/1", 1, "a/x", "one"), datagram("h/p/1", 2, "a/x", b"\x1b[2J\a\r\n\xff\0")
        send(port, one, one, two, one, two, datagram("h/p/1", 1, "a/y", "three"))
        assert process.until(b"\n") == b"a/x one\n"
        assert process.until(b"\n") == rb"a/x \x1b[2J\x07\r\n\xff\x00" + b"\n"
        assert process.until(b"\n") == b"a/y three\n"
        assert process.end(signal.SIGINT) == (0, b"", b"")


def test_json_tells_everything_and_holds_any_payload(port: int) -> None:
    with Wire(port) as wire, sub(port, "--json", "-n", "2") as process:
        wire.send(datagram("h/p/1", 2**64 - 1, "x/y", "ü \x1b[31m"), datagram("?", 2, "!", b"\xff\0"))
        status, out, _ = process.end()
    assert status == 0
    first, second = (json.loads(line) for line in out.splitlines())
    message = {"src": "h/p/1", "seq": 2**64 - 1, "chan": "x/y", "payload": "ü \x1b[31m", "form": "plain"}
    assert first.items() >= {**message, "peer": f"127.0.0.1:{port}"}.items()
    assert first["received_ns"] > 0
    assert base64.b64decode(second["payload_base64"]) == b"\xff\0"
    assert (second["src"], second["form"], "payload" in second) == ("?", "all", False)


@pytest.mark.parametrize(
    ("options", "sent", "status"),
    [("-t 0 x", 0, 0), ("-n 1 -t 0 x", 0, 5), ("-n 3 -t 2 x", 2, 5), ("-n 2 x", 2, 0)],
)
def test_sub_ends_after_its_number_or_its_time(port: int, options: str, sent: int, status: int) -> None:
    with sub(port, *options.split()) as process:
        # Only what a pattern asks for counts.
        send(port, datagram("h/q/1", 1, "y", "no"))
        send(port, *(datagram("h/p/1", number, "x", str(number)) for number in range(sent)))
        assert process.end() == (status, b"".join(b"x %d\n" % number for number in range(sent)), b"")


@pytest.mark.parametrize("pattern", ["", "never"])
def test_the_time_is_over_while_messages_keep_coming(port: int, pattern: str) -> None:
    """A sender that is faster than we print must not keep `bccn sub -t 1` from ending."""
    with bccnd.Endpoint("a", BROADCAST, port) as endpoint:
        for number in range(20):
            endpoint.send("x", str(number))
        wait(lambda: endpoint.receive("nothing") or endpoint.stats()["TQMC"]["*"] == 20)
        assert len(list(select_messages(endpoint, [pattern], time.monotonic()))) <= 1
        assert sum(endpoint.stats()["QMC"].values()) >= 19


# -- keys


BAD_OPTIONS = [
    (2, "--segment 127.0.0.1:0", "127.0.0.1:0"),
    (2, "--segment localhost", "localhost"),
    (2, "--name two:words", "two:words"),
    (2, "--algorithm hmac", "key"),
    (2, "--key {folder}/nosuch", "{folder}/nosuch"),
    (2, "--key {folder}/open", "chmod 600 {folder}/open"),
    (2, "--key {folder}/pair", "sig"),
    (2, "--algorithm sig --key {folder}/shared", "{folder}/shared"),
    (2, "--signer h={folder}/shared", "public key"),
    # keys that would not be used
    (2, "--algorithm none --key {folder}/shared", "key"),
    (2, "--algorithm crc32 --key {folder}/shared", "key"),
    (2, "--algorithm hmac --key {folder}/shared --signer h={folder}/pair.pub", "signer"),
    (2, "--algorithm sig --key {folder}/pair --signer a:b={folder}/pair.pub", "a:b"),
    # a segment out of reach
    (1, "--segment 127.0.0.1:5400", "127.0.0.1"),
    (1, "--interface nosuch0", "nosuch0"),
]


def test_wrong_options_are_refused_and_named(tmp_path: Path, port: int) -> None:
    key_file(tmp_path / "shared")
    key_file(tmp_path / "open", mode=0o644)
    key_pair(tmp_path, "pair")
    for status, options, output in BAD_OPTIONS:
        words = [*direct(port), *options.format(folder=tmp_path).split()]
        for done in (bccn("direct", "pub", *words, "x", "y"), bccn("direct", "sub", *words, "x", "-t", "0")):
            assert (done.returncode, done.stdout) == (status, b""), options
            assert output.format(folder=tmp_path) in done.stderr.decode(), options


# -- making keys


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_keygen_gives_files_their_mode_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        done = [bccn("keygen", tmp_path / "shared"), bccn("keygen", "--algorithm", "sig", tmp_path / "own")]
    finally:
        os.umask(before)
    assert [(one.returncode, one.stdout) for one in done] == [(0, b"")] * 2
    modes = {path.name: mode_of(path) for path in tmp_path.iterdir()}
    assert modes == {"shared": 0o600, "own": 0o600, "own.pub": 0o644}
    assert re.fullmatch(rb"[0-9a-f]{64}\n", (tmp_path / "shared").read_bytes())


@pytest.mark.parametrize(("algorithm", "existing"), [("hmac", "key"), ("sig", "key"), ("sig", "key.pub")])
def test_keygen_replaces_a_key_only_when_forced(tmp_path: Path, algorithm: str, existing: str) -> None:
    files = ["key"] if algorithm == "hmac" else ["key", "key.pub"]
    make = ["keygen", "--algorithm", algorithm, str(tmp_path / "key")]
    (tmp_path / existing).write_bytes(b"precious")
    done = bccn(*make)
    assert (done.returncode, b"--force" in done.stderr) == (1, True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {existing: b"precious"}
    contents = []
    for _ in range(2):
        assert bccn(*make, "--force").returncode == 0
        contents.append([(tmp_path / name).read_bytes() for name in files])
    assert all(first != second for first, second in zip(*contents, strict=True))
    assert mode_of(tmp_path / "key") == 0o600
    for words, status in (("/nonexistent/key", 1), ("/proc/key", 1), ("", 2), (".", 2), ("--algorithm crc32 key", 2)):
        assert bccn("keygen", *words.split()).returncode == status, words


def test_keys_of_keygen_serve_the_tool_and_the_daemon(tmp_path: Path) -> None:
    assert bccn("keygen", tmp_path / "shared").returncode == 0
    own, daemons = key_pair(tmp_path, "own"), key_pair(tmp_path, "daemons")
    sections: list[tuple[dict[str, Any], list[str]]] = [
        ({"algorithm": "hmac", "keys": [str(tmp_path / "shared")]}, ["--key", str(tmp_path / "shared")]),
        (
            {"algorithm": "sig", "keys": [str(daemons)], "signers": {"tool": [f"{own}.pub"]}},
            ["--algorithm", "sig", "--key", str(own), "--name", "tool/1", "--signer", f"relay01={daemons}.pub"],
        ),
    ]
    for integrity, options in sections:
        with (
            Daemon(tmp_path / str(integrity["algorithm"]), {"integrity": integrity}) as daemon,
            daemon.connect("x") as client,
            sub(daemon.port, "-n", "1", "y", *options) as process,
        ):
            assert bccn("direct", "pub", *direct(daemon.port), *options, "x", "to the bus").returncode == 0
            assert payloads(client, 1) == [b"to the bus"]
            client.publish("y", b"from the bus")
            assert process.end() == (0, b"y from the bus\n", b"")
