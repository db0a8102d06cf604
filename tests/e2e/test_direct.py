"""Without a daemon and beside one: `bccn direct`, its keys, and an Endpoint on the segment that a daemon serves."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

import bccnd
from bccnd.cli.main import main
from bccnd.cli.messages.direct import select_messages
from tests.e2e.harness import BIN, KEY, PATIENCE, Daemon, Wire, datagram, payloads, wait
from tests.e2e.listener import Listener
from tests.e2e.network import PORT, Net
from tests.support import BROADCAST, free_port


class Done(NamedTuple):
    returncode: int
    stdout: bytes
    stderr: bytes


def bccn(*arguments: str | Path, stdin: bytes | None = None) -> Done:
    """Run the tool to its end. No daemon is where it would look for one."""
    done = CliRunner().invoke(main, ["--socket", "/nonexistent/bus.sock", *map(str, arguments)], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, done.stdout_bytes, done.stderr_bytes)


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


def test_pub_sends_under_the_name_of_host_program_and_pid_unless_another_is_given(
    port: int, ear: bccnd.Endpoint
) -> None:
    cases: list[tuple[list[str], str, str]] = [
        ([], "demo/hello", "hello, world"),
        (["--name", "my/own/name"], "!", "to all"),
        (["--name", ""], "x", ""),
    ]
    for options, chan, payload in cases:
        assert bccn("direct", "pub", *direct(port), *options, chan, payload) == (0, b"", b"")
        message = heard(ear)
        assert (message.chan, message.payload) == (chan, payload.encode())
        assert re.fullmatch(options[1] or r"\?" if options else r"[^/]+/bccn/\d+", message.src)


def test_pub_sends_each_line_of_standard_input_and_ends_with_1_where_it_cannot(port: int, ear: bccnd.Endpoint) -> None:
    lines = [b"one", b"", b"three | with : marks", "fünf".encode(), b"\xff\0raw", b"without an end"]
    assert bccn("direct", "pub", *direct(port), "x", stdin=b"\n".join(lines)).returncode == 0
    found = [heard(ear) for _ in lines]
    assert [one.payload for one in found] == lines
    assert len({one.src for one in found}) == 1
    assert [one.seq - found[0].seq for one in found] == list(range(len(lines)))
    assert bccn("direct", "pub", *direct(port), "x", stdin=b"").returncode == 0
    done = bccn("direct", "pub", *direct(port), "x", stdin=b"good\n" + b"." * 1400 + b"\nnever sent\n")
    assert done.returncode == 1
    assert b"at most 1400" in done.stderr
    for channel in ("two words", "a:b", "", "!?"):
        assert bccn("direct", "pub", *direct(port), channel, "x").returncode == 1
    assert bccn("direct", "pub", *direct(port), "x", "the end").returncode == 0
    assert [heard(ear).payload for _ in range(2)] == [b"good", b"the end"]


def test_sub_prints_what_its_patterns_match_and_what_is_for_all_or_for_it(port: int) -> None:
    chans = ["a/x", "a", "b/1/c", "b/c", "!", "!h/sub/7", "!h/sub/7/*", "!h", "!i", "a/end"]
    wanted = ["a/x", "b/1/c", "!", "!h/sub/7", "!h/sub/7/*", "!h", "a/end"]
    with sub(port, "a/", "b/*/c", "--name", "h/sub/7") as process:
        send(port, *(datagram("h/wire/1", seq, chan, chan) for seq, chan in enumerate(chans)))
        assert [process.until(b"\n") for _ in wanted] == [f"{chan} {chan}\n".encode() for chan in wanted]
        # Once each, and nothing from the network reaches a terminal as it is.
        one, two = datagram("h/p/1", 1, "a/x", "one"), datagram("h/p/1", 2, "a/x", b"\x1b[2J\a\r\n\xff\0")
        send(port, one, one, two, one, two, datagram("h/p/1", 1, "a/y", "three"))
        assert process.until(b"\n") == b"a/x one\n"
        assert process.until(b"\n") == rb"a/x \x1b[2J\x07\r\n\xff\x00" + b"\n"
        assert process.until(b"\n") == b"a/y three\n"
        assert process.end(signal.SIGINT) == (0, b"", b"")


def test_json_tells_everything_and_holds_any_payload(port: int) -> None:
    with Wire(port) as wire:
        packets = [
            datagram("h/p/1", 2**64 - 1, "x/y", "ü \x1b[31m"),
            datagram("?", 2, "!", b"\xff\0"),
            datagram("h", 3, "x"),
        ]
        with sub(port, "--json", "-n", "3") as process:
            wire.send(*packets)
            status, out, _ = process.end()
    assert status == 0
    first, second, third = (json.loads(line) for line in out.splitlines())
    assert first.pop("received_ns") > 0
    assert first.pop("time").endswith("Z")
    message = {"src": "h/p/1", "seq": 2**64 - 1, "chan": "x/y", "payload": "ü \x1b[31m", "form": "plain"}
    assert first == {**message, "peer": f"127.0.0.1:{port}"}
    assert base64.b64decode(second["payload_base64"]) == b"\xff\0"
    assert "payload" not in second
    assert (second["src"], second["form"]) == ("?", "all")
    assert third["payload"] == ""


@pytest.mark.parametrize(
    ("options", "sent", "status"),
    [("-t 2", 2, 0), ("-t 0", 0, 0), ("-n 1 -t 0", 0, 5), ("-n 3 -t 2", 2, 5), ("-n 2", 2, 0)],
)
def test_sub_ends_after_its_number_or_its_time_and_its_status_says_whether_the_number_was_met(
    port: int, options: str, sent: int, status: int
) -> None:
    with sub(port, *options.split()) as process:
        send(port, *(datagram("h/p/1", number, "x", str(number)) for number in range(sent)))
        assert process.end() == (status, b"".join(b"x %d\n" % number for number in range(sent)), b"")


def test_only_what_a_pattern_asks_for_counts(port: int) -> None:
    with Wire(port) as wire, sub(port, "-n", "1", "x") as process:
        wire.send(datagram("h/p/1", 1, "!", "all"), datagram("h/p/1", 2, "x", "yes"))
        assert process.end() == (0, b"x yes\n", b"")


@pytest.mark.parametrize("pattern", ["", "never"])
def test_the_time_is_over_also_while_messages_keep_coming(port: int, pattern: str) -> None:
    """A sender that is faster than we print must not keep `bccn sub -t 1` from ending."""
    with bccnd.Endpoint("a", BROADCAST, port) as endpoint:
        for number in range(20):
            endpoint.send("x", str(number))
        wait(lambda: endpoint.receive("nothing") or endpoint.stats()["TQMC"]["*"] == 20)
        assert len(list(select_messages(endpoint, [pattern], time.monotonic()))) <= 1
        assert sum(endpoint.stats()["QMC"].values()) >= 19


def test_sub_ends_quietly_with_its_reader(port: int) -> None:
    with sub(port) as one:
        process = one.process
        assert process.stdout is not None
        process.stdout.close()

        def ended() -> bool:
            send(port, datagram("?", 1, "x", os.urandom(8).hex()))
            return process.poll() is not None

        wait(ended, "bccn sub to notice")
        process.stdout = None
        assert process.stderr is not None
        assert (process.returncode, process.stderr.read()) == (-signal.SIGPIPE, b"")


# -- keys


def test_with_a_key_datagrams_are_signed(tmp_path: Path, port: int) -> None:
    second = b"another key, as long as it has to be"
    key, other = str(key_file(tmp_path / "key")), str(key_file(tmp_path / "other", second))
    with Wire(port) as wire:
        for options, secret in ((["--key", key], KEY), (["--key", other, "--key", key], second)):
            assert bccn("direct", "pub", *direct(port), *options, "x", "y").returncode == 0
            raw = wire.receive(b"BCCN1")
            src, seq, _ = raw.partition(b"]")[2].split(b":")
            # The trailing line end of the file is no part of the key.
            assert raw == datagram(src.decode(), int(seq), "x", "y", secret)
        for algorithm in ("crc32", "none"):
            assert bccn("direct", "pub", *direct(port), "--algorithm", algorithm, "x", algorithm).returncode == 0
            assert (b":crc32=" in wire.receive(f"|{algorithm}".encode())) == (algorithm == "crc32")


BAD_OPTIONS = [
    ("--segment 127.0.0.1:0", "127.0.0.1:0"),
    ("--segment localhost", "localhost"),
    ("--name two:words", "two:words"),
    ("--algorithm hmac", "hmac needs a key"),
    ("--key {folder}/nosuch", "{folder}/nosuch: No such file"),
    ("--key {folder}/open", "chmod 600 {folder}/open"),
    ("--key {folder}/pair", "algorithm: sig"),
    ("--algorithm sig --key {folder}/shared", "{folder}/shared"),
    ("--signer h={folder}/shared", "public key"),
    # keys that would not be used
    ("--algorithm none --key {folder}/shared", "key"),
    ("--algorithm crc32 --key {folder}/shared", "key"),
    ("--algorithm hmac --key {folder}/shared --signer h={folder}/pair.pub", "signer"),
    ("--algorithm sig --key {folder}/pair --signer a:b={folder}/pair.pub", "a:b"),
]


@pytest.fixture(scope="module")
def key_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys that are in order, and some that are not."""
    folder = tmp_path_factory.mktemp("keys")
    key_file(folder / "shared")
    key_file(folder / "open", mode=0o644)
    key_pair(folder, "pair")
    return folder


@pytest.mark.parametrize("command", ["pub x y", "sub x -t 0"])
def test_wrong_options_end_with_2_and_say_what_is_wrong(key_folder: Path, port: int, command: str) -> None:
    name, *rest = command.split()
    for options, output in BAD_OPTIONS:
        done = bccn("direct", name, *direct(port), *options.format(folder=key_folder).split(), *rest)
        assert (done.returncode, done.stdout) == (2, b""), options
        assert output.format(folder=key_folder) in done.stderr.decode(), options


def test_a_segment_out_of_reach_ends_with_1(port: int) -> None:
    for name, value in (("--segment", f"127.0.0.1:{port}"), ("--interface", "nosuch0")):
        for command in (["pub", "x", "y"], ["sub", "-t", "0"]):
            done = bccn("direct", command[0], *direct(port), name, value, *command[1:])
            assert done.returncode == 1
            assert value.partition(":")[0] in done.stderr.decode()
            assert b"remedy: " in done.stderr


# -- making keys


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_keygen_makes_files_of_the_right_mode_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        done = [bccn("keygen", tmp_path / "shared"), bccn("keygen", "--algorithm", "sig", tmp_path / "own")]
    finally:
        os.umask(before)
    assert [(one.returncode, one.stdout) for one in done] == [(0, b"")] * 2
    modes = {path.name: mode_of(path) for path in tmp_path.iterdir()}
    assert modes == {"shared": 0o600, "own": 0o600, "own.pub": 0o644}
    assert re.fullmatch(rb"[0-9a-f]{64}\n", (tmp_path / "shared").read_bytes())
    assert (tmp_path / "own").read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")
    assert (tmp_path / "own.pub").read_bytes().startswith(b"-----BEGIN PUBLIC KEY-----\n")


@pytest.mark.parametrize(("algorithm", "existing"), [("hmac", "key"), ("sig", "key"), ("sig", "key.pub")])
def test_keygen_replaces_a_key_only_when_it_is_forced_to(tmp_path: Path, algorithm: str, existing: str) -> None:
    files = ["key"] if algorithm == "hmac" else ["key", "key.pub"]
    make = ["keygen", "--algorithm", algorithm, str(tmp_path / "key")]
    (tmp_path / existing).write_bytes(b"precious")
    done = bccn(*make)
    assert done.returncode == 1
    assert f"{tmp_path / existing} exists" in done.stderr.decode()
    assert b"--force" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_bytes() == b"precious"
    contents = []
    for _ in range(2):
        assert bccn(*make, "--force").returncode == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == files
        contents.append([(tmp_path / name).read_bytes() for name in files])
    assert all(first != second for first, second in zip(*contents, strict=True))
    assert mode_of(tmp_path / "key") == 0o600


def test_keygen_says_what_it_cannot_do() -> None:
    for arguments, status in (
        ("/nonexistent/key", 1),
        ("/proc/key", 1),
        ("", 2),
        (".", 2),
        ("--algorithm crc32 key", 2),
    ):
        done = bccn("keygen", *arguments.split())
        assert (done.returncode, bool(done.stderr)) == (status, True), arguments


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


# -- between hosts


@pytest.mark.root
@pytest.mark.slow
def test_publishing_faster_than_the_wire_takes_it_waits_for_the_wire(net: Net) -> None:
    """The loopback interface takes everything at once; a real one lets a socket that is ahead of it wait."""
    net.run("a", "sh", "-c", "tc qdisc add dev lan0 root tbf rate 8mbit burst 3000 latency 20s")
    lines = b"".join(b"%d\n" % number for number in range(1500))
    with sub(PORT, "-n", "1500", "--interface", "lan0", address="10.77.0.255", on=net.on("b")) as receiver:
        where = ["--segment", f"10.77.0.255:{PORT}", "--interface", "lan0"]
        printed: list[bytes] = []
        reader = threading.Thread(target=lambda: printed.append(receiver.end()[1]))
        reader.start()
        try:
            command = [*net.on("a"), str(BIN / "bccn"), "direct", "pub", *where, "x"]
            done = subprocess.run(command, input=lines, capture_output=True, timeout=PATIENCE, check=False)
            assert (done.returncode, done.stderr) == (0, b"")
        except BaseException:
            receiver.process.kill()
            raise
        finally:
            reader.join()
    assert printed == [b"".join(b"x %d\n" % number for number in range(1500))]
