"""Without a daemon and beside one: `bccn --direct`, its keys, and an Endpoint on the segment that a daemon serves."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

import bccnd
from bccnd.cli.direct import messages
from tests.e2e.harness import BIN, KEY, PATIENCE, Daemon, Wire, datagram, payloads, wait
from tests.e2e.network import PORT, Net
from tests.support import BROADCAST, NOBODY, cannot_here, free_port, listens, need_root

# -- the tool as a process


def bccn(
    *arguments: str | Path, stdin: bytes | None = None, on: Sequence[str] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run the tool to its end; ``on`` runs it on another host. No daemon is where it would look for one."""
    command = [*on, str(BIN / "bccn"), "--socket", "/nonexistent/bus.sock", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE, check=False)


class Sub:
    """A `bccn sub --direct` that listens when this has been made."""

    def __init__(self, port: int, *arguments: str | Path, address: str = BROADCAST, on: Sequence[str] = ()) -> None:
        command = [*on, str(BIN / "bccn"), "sub", "--direct", "--address", address, "--port", str(port)]
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            wait(lambda: listens(self.process.pid, port) or self.process.poll() is not None, "bccn sub to listen")
            assert self.process.poll() is None, self.process.communicate()
        except BaseException:
            self.close()
            raise

    def line(self) -> bytes:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: int | None = None) -> tuple[int, bytes, bytes]:
        """Wait for its end, or bring it about; exit status, what it printed, what it complained of."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> Sub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def direct(port: int) -> list[str]:
    return ["--direct", "--address", BROADCAST, "--port", str(port)]


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


def test_what_one_tool_publishes_another_prints(port: int) -> None:
    with Sub(port, "-n", "3") as sub:
        for chan, payload in [("demo/hello", "hello, world"), ("!", "to all"), ("x", "")]:
            done = bccn("pub", *direct(port), chan, payload)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert sub.end() == (0, b"demo/hello hello, world\n! to all\nx \n", b"")


def test_sub_prints_what_its_patterns_match_and_what_is_for_everyone_or_for_it(port: int) -> None:
    with Sub(port, "a/", "b/*/c", "--name", "h/sub/7") as sub:
        with Wire(port) as wire:
            for seq, chan in enumerate(
                ["a/x", "a", "b/1/c", "b/c", "!", "!h/sub/7", "!h/sub/7/*", "!h", "!i", "a/end"]
            ):
                wire.send(datagram("h/wire/1", seq, chan, chan))
        wanted = ["a/x", "b/1/c", "!", "!h/sub/7", "!h/sub/7/*", "!h", "a/end"]
        assert [sub.line() for _ in wanted] == [f"{chan} {chan}\n".encode() for chan in wanted]
        assert sub.end(signal.SIGINT) == (0, b"", b"")


def test_the_name_is_host_program_and_pid_unless_it_is_given(port: int) -> None:
    with Sub(port, "--json", "-n", "3") as sub:
        for options in ([], ["--name", "my/own/name"], ["--name", ""]):
            assert bccn("pub", *direct(port), *options, "x", "y").returncode == 0
        status, out, err = sub.end()
        assert (status, err) == (0, b"")
        names = [json.loads(line)["src"] for line in out.splitlines()]
        assert re.fullmatch(r"[^/]+/bccn/\d+", names[0])
        assert names[1:] == ["my/own/name", "?"]


def test_json_tells_everything_and_holds_any_payload(port: int) -> None:
    with Sub(port, "--json", "-n", "3") as sub, Wire(port) as wire:
        wire.send(
            datagram("h/p/1", 2**64 - 1, "x/y", "ü \x1b[31m"), datagram("?", 2, "!", b"\xff\0"), datagram("h", 3, "x")
        )
        status, out, _ = sub.end()
    assert status == 0
    first, second, third = (json.loads(line) for line in out.splitlines())
    assert first.pop("received_ns") > 0
    assert first == {
        "src": "h/p/1",
        "seq": 2**64 - 1,
        "chan": "x/y",
        "payload": "ü \x1b[31m",
        "form": "plain",
        "peer": f"127.0.0.1:{port}",
    }
    assert base64.b64decode(second["payload_base64"]) == b"\xff\0"
    assert "payload" not in second
    assert (second["src"], second["form"]) == ("?", "all")
    assert third["payload"] == ""


def test_nothing_from_the_network_gives_orders_to_a_terminal(port: int) -> None:
    with Sub(port, "-n", "1") as sub, Wire(port) as wire:
        wire.send(datagram("h", 1, "x", b"\x1b[2J\a\r\n\xff\0"))
        status, out, _ = sub.end()
    assert status == 0
    assert out == rb"x \x1b[2J\x07\r\n\xff\x00" + b"\n"


def test_each_line_of_standard_input_is_a_message(port: int) -> None:
    lines = [b"one", b"", b"three | with : marks", "fünf".encode(), b"\xff\0raw", b"without an end"]
    with Sub(port, "--json", "-n", str(len(lines))) as sub:
        assert bccn("pub", *direct(port), "x", stdin=b"\n".join(lines)).returncode == 0
        status, out, _ = sub.end()
    assert status == 0
    found = [json.loads(line) for line in out.splitlines()]
    assert [
        base64.b64decode(one["payload_base64"]) if "payload_base64" in one else one["payload"].encode() for one in found
    ] == lines
    assert len({one["src"] for one in found}) == 1
    assert [one["seq"] - found[0]["seq"] for one in found] == list(range(len(lines)))
    assert bccn("pub", *direct(port), "x", stdin=b"").returncode == 0


def test_a_line_that_cannot_be_sent_ends_with_1_and_says_why(port: int) -> None:
    with Sub(port, "x") as sub:
        done = bccn("pub", *direct(port), "x", stdin=b"good\n" + b"." * 1400 + b"\nnever sent\n")
        assert done.returncode == 1
        assert re.fullmatch(rb"bccn: \d+ bytes, and a datagram has at most 1400\n", done.stderr)
        assert bccn("pub", *direct(port), "x", "the end").returncode == 0
        assert [sub.line(), sub.line()] == [b"x good\n", b"x the end\n"]


@pytest.mark.parametrize(
    ("channel", "said"), [("two words", b"graphic ASCII"), ("a:b", b"graphic ASCII"), ("", b"1 to 1024"), ("!?", b"?")]
)
def test_a_channel_that_is_none_ends_with_1(port: int, channel: str, said: bytes) -> None:
    done = bccn("pub", *direct(port), channel, "x")
    assert done.returncode == 1
    assert said in done.stderr
    assert b"Traceback" not in done.stderr


def test_copies_of_a_message_are_printed_once(port: int) -> None:
    with Sub(port, "-n", "3") as sub, Wire(port) as wire:
        one, two = datagram("h/p/1", 1, "x", "one"), datagram("h/p/1", 2, "x", "two")
        wire.send(one, one, two, one, two, datagram("h/p/1", 1, "y", "three"))
        assert sub.end() == (0, b"x one\nx two\ny three\n", b"")


@pytest.mark.parametrize(
    ("options", "sent", "status"),
    [
        (["-t", "0.2"], 2, 0),
        (["-t", "0.2"], 0, 0),
        (["-t", "0"], 0, 0),
        (["-n", "1", "-t", "0"], 0, 1),
        (["-n", "3", "-t", "0.5"], 2, 1),
        (["-n", "2", "-t", "60"], 2, 0),
        (["-n", "2"], 2, 0),
    ],
    ids=str,
)
def test_sub_ends_after_its_number_or_its_time_and_tells_whether_the_number_was_met(
    port: int, options: list[str], sent: int, status: int
) -> None:
    if sent == 0:
        done = bccn("sub", *direct(port), *options)
        assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")
        return
    over = threading.Event()

    def send() -> None:  # again and again, as nobody knows when it listens; the number tells the copies
        with Wire(port) as wire:
            while not over.wait(0.01):
                wire.send(*(datagram("h/p/1", number, "x", str(number)) for number in range(sent)))

    sender = threading.Thread(target=send)
    sender.start()
    try:
        done = bccn("sub", *direct(port), *options)
    finally:
        over.set()
        sender.join()
    assert (done.returncode, done.stderr) == (status, b"")
    if "-n" in options:
        assert done.stdout.splitlines() == [b"x %d" % number for number in range(sent)]


@pytest.mark.parametrize("timeout", ["inf", "1e9"])
def test_sub_may_wait_for_very_long(port: int, timeout: str) -> None:
    with Sub(port, "-n", "1", "-t", timeout) as sub:
        assert bccn("pub", *direct(port), "x", "y").returncode == 0
        assert sub.end() == (0, b"x y\n", b"")


@pytest.mark.parametrize("patterns", [[""], ["never"]], ids=["wanted", "unwanted"])
def test_the_time_is_over_also_while_messages_keep_coming(port: int, patterns: list[str]) -> None:
    """Who sends faster than we print must not keep `bccn sub -t 1` from ending."""
    with bccnd.Endpoint("a", BROADCAST, port) as endpoint:
        for number in range(20):
            endpoint.send("x", str(number))
        wait(lambda: endpoint.receive("nothing") or endpoint.stats()["TQMC"]["*"] == 20)
        assert len(list(messages(endpoint, patterns, time.monotonic()))) <= 1
        assert sum(endpoint.stats()["QMC"].values()) >= 19


def test_sub_ends_quietly_with_its_reader(port: int) -> None:
    with Sub(port) as sub, Wire(port) as wire:
        assert sub.process.stdout is not None
        sub.process.stdout.close()

        def ended() -> bool:
            wire.send(datagram("?", 1, "x", os.urandom(8).hex()))
            return sub.process.poll() is not None

        wait(ended, "bccn sub to notice")
        assert sub.process.returncode == -signal.SIGPIPE
        assert sub.process.stderr is not None
        assert sub.process.stderr.read() == b""
        sub.process.stdout = None


# -- keys


def test_with_a_key_only_those_who_hold_it_are_heard(tmp_path: Path, port: int) -> None:
    key, other = key_file(tmp_path / "key"), key_file(tmp_path / "other", b"another key, as long as it has to be")
    with (
        Sub(port, "-n", "1", "--key", key) as signed,
        Sub(port, "-n", "2", "--key", other, "--key", key) as both,
        Sub(port, "-n", "1") as plain,
        Wire(port) as wire,
    ):
        for options in (["--key", str(key)], ["--key", str(other)], []):
            assert bccn("pub", *direct(port), *options, "x", *options[1:] or ["0"]).returncode == 0
        # The trailing line end of the file is no part of the key.
        raw = wire.hear(b"BCCN1")
        src, seq, _ = raw.partition(b"]")[2].split(b":")
        assert raw == datagram(src.decode(), int(seq), "x", str(key), KEY)
        assert signed.end() == (0, f"x {key}\n".encode(), b"")
        assert both.end() == (0, f"x {key}\nx {other}\n".encode(), b"")
        assert plain.end() == (0, b"x 0\n", b"")


def test_a_checksum_keeps_nobody_out_and_needs_no_key(port: int) -> None:
    with Sub(port, "-n", "1", "--algorithm", "crc32") as sub, Wire(port) as wire:
        assert bccn("pub", *direct(port), "x", "unchecked").returncode == 0
        assert bccn("pub", *direct(port), "--algorithm", "crc32", "x", "checked").returncode == 0
        assert b":crc32=" in wire.hear(b"|checked")
        assert sub.end() == (0, b"x checked\n", b"")


def test_signatures_speak_for_whom_they_were_named(tmp_path: Path, port: int) -> None:
    one, two = key_pair(tmp_path, "one"), key_pair(tmp_path, "two")
    signers = ["--signer", f"h={one}.pub", "--signer", f"h/p={one}.pub", "--signer", f"h/p={two}.pub"]
    with Sub(port, "-n", "3", *signers) as sub, Sub(port, "-n", "2", "--signer", f"{two}.pub") as all_of_two:
        for name, key in [("h/1", one), ("h/2", two), ("h/p/1", one), ("h/p/2", two), ("i/1", two)]:
            sent = bccn("pub", *direct(port), "--algorithm", "sig", "--key", key, "--name", name, "x", name)
            assert sent.returncode == 0, sent.stderr
        assert sub.end() == (0, b"x h/1\nx h/p/1\nx h/p/2\n", b"")
        assert all_of_two.end()[:2] == (0, b"x h/2\nx h/p/2\n")


BAD_OPTIONS: list[tuple[list[str], str]] = [
    (["--port", "0"], "not in the range"),
    (["--port", "x"], "not a valid integer"),
    (["--hop-limit", "256"], "not in the range"),
    (["--address", "localhost"], "'localhost' is no address; write it in numbers"),
    (["--name", "two words"], "'two words': src must be"),
    (["--name", "a/"], "no / at its end"),
    (["--algorithm", "md5"], "'md5' is not one of"),
    (["--algorithm", "hmac"], "hmac needs a key"),
    (["--key", "{folder}/nosuch"], "cannot read key {folder}/nosuch: No such file"),
    (["--key", "{folder}"], "cannot read key {folder}: Is a directory"),
    (["--key", "/dev/null"], "key /dev/null is no regular file"),
    (["--key", "{folder}/short"], "holds 5 bytes, at least 16 are needed"),
    (
        ["--key", "{folder}/open"],
        "key {folder}/open has mode 0644: others can read it\n  remedy: chmod 600 {folder}/open",
    ),
    (["--key", "{folder}/pair"], "is a key for signatures\n  remedy: set algorithm: sig"),
    (["--key", "{folder}/pair.pub"], "has mode 0644"),
    (["--algorithm", "sig", "--key", "{folder}/shared"], "key {folder}/shared holds no private key"),
    (["--signer", "h={folder}/shared"], "no public key"),
    (["--signer", "h={folder}/nosuch"], "cannot read key {folder}/nosuch"),
    (["--signer", "h={folder}/writable"], "public key {folder}/writable has mode 0666: others can replace it"),
]


@pytest.mark.parametrize("command", ["pub", "sub"])
@pytest.mark.parametrize(("options", "said"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
def test_options_that_are_wrong_end_with_2_and_a_word_that_helps(
    tmp_path: Path, port: int, command: str, options: list[str], said: str
) -> None:
    key_file(tmp_path / "shared")
    key_file(tmp_path / "open", mode=0o644)
    key_file(tmp_path / "short", b"short")
    shutil.copy(f"{key_pair(tmp_path, 'pair')}.pub", tmp_path / "writable")
    (tmp_path / "writable").chmod(0o666)
    given = [option.format(folder=tmp_path) for option in options]
    done = bccn(command, *direct(port), *given, "x", *(["y"] if command == "pub" else ["-t", "0"]))
    assert done.returncode == 2, done.stderr
    assert said.format(folder=tmp_path) in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert done.stdout == b""


def test_a_key_of_somebody_else_is_refused(tmp_path: Path, port: int) -> None:
    need_root("to give a file to another user")
    key = key_file(tmp_path / "key")
    os.chown(key, NOBODY, -1)
    done = bccn("pub", *direct(port), "--key", key, "x", "y")
    assert done.returncode == 2
    assert f"belongs to uid {NOBODY}".encode() in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--algorithm", "none", "--key", "{folder}/shared"], id="goes out without a check"),
        pytest.param(["--algorithm", "crc32", "--key", "{folder}/shared"], id="goes out with a mere checksum"),
        pytest.param(
            ["--key", "{folder}/shared", "--signer", "h={folder}/pair.pub", "--algorithm", "hmac"], id="signer"
        ),
        pytest.param(["--key", "{folder}/pair", "--signer", "a:b={folder}/pair.pub"], id="whom no src can be below"),
    ],
)
def test_keys_that_would_not_be_used_end_with_2(tmp_path: Path, port: int, options: list[str]) -> None:
    key_file(tmp_path / "shared")
    key_pair(tmp_path, "pair")
    given = [option.format(folder=tmp_path) for option in options]
    if "{folder}/pair" in options:
        given += ["--algorithm", "sig"]
    done = bccn("pub", *direct(port), *given, "x", "y")
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize(
    "options",
    [["--key", "{folder}/key"], ["--address", BROADCAST], ["--name", "a/b"], ["--interface", "lo"], ["--port", "5401"]],
    ids=lambda options: options[0],
)
def test_options_of_direct_without_direct_end_with_2(tmp_path: Path, options: list[str]) -> None:
    key_file(tmp_path / "key")
    done = bccn("pub", *(option.format(folder=tmp_path) for option in options), "x", "y")
    assert done.returncode == 2, done.stderr
    assert b"--direct" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--address", "127.0.0.1"], "127.0.0.1 is not a broadcast address of this host"),
        (["--interface", "nosuch0"], "there is no interface nosuch0"),
    ],
)
def test_a_segment_that_cannot_be_reached_ends_with_1_and_a_remedy(port: int, options: list[str], said: str) -> None:
    for command in (["pub", "x", "y"], ["sub", "-t", "0"]):
        done = bccn(command[0], *direct(port), *options, *command[1:])
        assert done.returncode == 1
        assert said in done.stderr.decode()
        assert b"remedy: " in done.stderr
        assert b"Traceback" not in done.stderr


def test_a_port_of_a_program_that_does_not_share_it_ends_with_1() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as selfish:
        selfish.bind(("", 0))
        done = bccn("pub", *direct(selfish.getsockname()[1]), "x", "y")
    assert done.returncode == 1
    assert b"in use by a program that does not share it" in done.stderr


@pytest.mark.parametrize("address", [BROADCAST, "239.1.2.3"])
def test_on_one_interface(port: int, address: str) -> None:
    where = ["--direct", "--address", address, "--port", str(port), "--interface", "lo"]
    with Sub(port, "-n", "1", "--interface", "lo", "--hop-limit", "2", address=address) as sub:
        assert bccn("pub", *where, "x", "on lo").returncode == 0
        assert sub.end() == (0, b"x on lo\n", b"")


# -- making keys


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_keygen_makes_files_of_the_right_mode_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    shell = ["sh", "-c", f'umask {umask:o}; exec "$0" "$@"', str(BIN / "bccn"), "keygen"]
    for options, files in (
        ([tmp_path / "shared"], {"shared": 0o600}),
        (["--algorithm", "sig", tmp_path / "own"], {"own": 0o600, "own.pub": 0o644}),
    ):
        done = subprocess.run([*shell, *map(str, options)], capture_output=True, timeout=PATIENCE, check=False)
        assert (done.returncode, done.stdout) == (0, b"")
        for name, mode in files.items():
            assert mode_of(tmp_path / name) == mode
            assert f"{name}" in done.stderr.decode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "own.pub", "shared"]
    assert re.fullmatch(rb"[0-9a-f]{64}\n", (tmp_path / "shared").read_bytes())
    assert (tmp_path / "own").read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")
    assert (tmp_path / "own.pub").read_bytes().startswith(b"-----BEGIN PUBLIC KEY-----\n")


@pytest.mark.parametrize(
    ("algorithm", "files", "existing"),
    [("hmac", ["key"], "key"), ("sig", ["key", "key.pub"], "key"), ("sig", ["key", "key.pub"], "key.pub")],
)
def test_keygen_replaces_a_key_only_when_it_is_forced_to(
    tmp_path: Path, algorithm: str, files: list[str], existing: str
) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["keygen", "/nonexistent/key"], 1),
        (["keygen", "/proc/key"], 1),
        (["keygen"], 2),
        (["keygen", "."], 2),
        (["keygen", "--algorithm", "crc32", "key"], 2),
    ],
    ids=str,
)
def test_keygen_says_what_it_cannot_do(arguments: list[str], status: int) -> None:
    done = bccn(*arguments)
    assert done.returncode == status
    assert done.stderr
    assert b"Traceback" not in done.stderr


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
            Sub(daemon.port, "-n", "1", "y", *options) as sub,
        ):
            assert bccn("pub", *direct(daemon.port), *options, "x", "to the bus").returncode == 0
            assert payloads(client, 1) == [b"to the bus"]
            client.publish("y", b"from the bus")
            assert sub.end() == (0, b"y from the bus\n", b"")


def openssl(*arguments: str) -> None:
    path = shutil.which("openssl") or cannot_here("there is no openssl")
    subprocess.run([path, *arguments], check=True, capture_output=True, timeout=PATIENCE)


def test_keys_of_openssl_are_as_good(tmp_path: Path, port: int) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    openssl("genpkey", "-algorithm", "ed25519", "-out", str(own))
    openssl("pkey", "-in", str(own), "-pubout", "-out", f"{own}.pub")
    openssl("rand", "-hex", "-out", str(shared), "32")
    for path in (own, shared):
        path.chmod(0o600)
    for sender, receiver in (
        (["--algorithm", "sig", "--key", str(own), "--name", "h/1"], ["--signer", f"h={own}.pub"]),
        (["--key", str(shared)], ["--key", str(shared)]),
    ):
        with Sub(port, "-n", "1", *receiver) as sub:
            done = bccn("pub", *direct(port), *sender, "x", "y")
            assert done.returncode == 0, done.stderr
            assert sub.end() == (0, b"x y\n", b"")


def test_a_key_of_another_kind_made_by_openssl_is_refused(tmp_path: Path, port: int) -> None:
    for name, options in (
        ("rsa", ["-algorithm", "rsa", "-pkeyopt", "rsa_keygen_bits:2048"]),
        ("phrase", ["-algorithm", "ed25519", "-aes256", "-pass", "pass:secret"]),
    ):
        openssl("genpkey", *options, "-out", str(tmp_path / name))
        (tmp_path / name).chmod(0o600)
        done = bccn("pub", *direct(port), "--algorithm", "sig", "--key", tmp_path / name, "x", "y")
        assert done.returncode == 2
        assert b"bccn keygen --algorithm sig" in done.stderr


# -- beside a daemon


def heard(endpoint: bccnd.Endpoint) -> bccnd.Message:
    message = endpoint.recv(PATIENCE)
    assert message is not None, "waited in vain for a message"
    return message


def test_a_daemon_and_an_endpoint_talk_and_each_message_counts_once(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a", start=False) as daemon:
        daemon.configure({"integrity": daemon.with_key(KEY)})
        daemon.start()
        name = "relay02/direct/7"
        with (
            bccnd.Endpoint(name, BROADCAST, daemon.port, keys=[KEY], dedup=True) as endpoint,
            daemon.connect("x/") as client,
        ):
            me = client.identity()
            seq = endpoint.send("x/y", "to the bus")
            message = client.receive(PATIENCE)
            assert isinstance(message, bccnd.Message)
            assert message[:6] == (name, seq, "x/y", b"to the bus", "plain", f"127.0.0.1:{daemon.port}")
            assert heard(endpoint).payload == b"to the bus"

            client.publish("x/z", "from the bus")
            assert payloads(client, 1) == [b"from the bus"]
            message = heard(endpoint)
            assert (message.src, message.chan, message.payload, message.form) == (me, "x/z", b"from the bus", "plain")

            # Directed and all forms, both ways; each answers whom it heard from.
            endpoint.send_to(me, "only you")
            client.send_to(message.src.rpartition("/")[0] + "/*", "my own kind")
            client.send_to(name, "only you")
            endpoint.send_to("relay02/direct/*", "myself")
            endpoint.send_all("all from outside")
            client.send_all("all from inside")
            # What comes in and what goes out take two ways through the daemon, and either may be faster.
            both = [b"all from inside", b"all from outside"]
            assert sorted(payloads(client, 4)) == [*both, b"my own kind", b"only you"]
            assert sorted(heard(endpoint).payload for _ in range(4)) == [*both, b"myself", b"only you"]
            assert client.receive(0.05) is None
            assert endpoint.recv(0.05) is None
            wait(lambda: daemon.verdicts() == {"accepted": 3, "not_addressed": 1, "looped": 4})
            assert endpoint.stats()["VERDICTS"] == {"accepted": 6, "not_addressed": 2}


def test_copies_forgeries_and_replays_count_as_such_on_both_sides(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a", start=False) as daemon:
        daemon.configure({"integrity": daemon.with_key(KEY)})
        daemon.start()
        with (
            bccnd.Endpoint("relay02/direct/7", BROADCAST, daemon.port, keys=[KEY], dedup=True) as endpoint,
            daemon.connect("x/") as client,
            Wire(daemon.port) as wire,
        ):
            endpoint.send("x/y", "once")
            raw = wire.hear(b"|once")
            wire.send(raw, raw, raw.replace(b"|once", b"|ones"), datagram("relay03/p/1", 1, "x/y", "unsigned"))
            wire.send(datagram("relay03/p/1", 2, "x/y", "the end", KEY))
            assert payloads(client, 2) == [b"once", b"the end"]
            assert [heard(endpoint).payload for _ in range(2)] == [b"once", b"the end"]
            expected = {"accepted": 2, "duplicate": 2, "integrity_failed": 1, "integrity_missing": 1}
            wait(lambda: daemon.verdicts() == expected)
            assert endpoint.stats()["VERDICTS"] == expected


def test_heartbeats_of_an_endpoint_make_it_alive_and_their_end_silent_and_dead(tmp_path: Path) -> None:
    name = "relay02/direct/7"

    def state(daemon: Daemon) -> str:
        rows = [json.loads(line) for line in daemon.tool("sources", "--json").stdout.splitlines()]
        (row,) = [row for row in rows if row["src"] == name] or [{"state": "unknown"}]
        return str(row["state"])

    with (
        Daemon(tmp_path / "a", {"heartbeat": {"interval": "200ms", "dead_after": 3}}) as daemon,
        daemon.connect("!/bccn/liveness/") as client,
        bccnd.Endpoint(name, BROADCAST, daemon.port) as endpoint,
    ):

        def told() -> bytes:
            """What clients are told next of this source."""
            while True:
                event = client.receive(PATIENCE)
                assert isinstance(event, bccnd.Message)
                if event.chan == f"!/bccn/liveness/{name}":
                    return event.payload

        endpoint.send("x")  # who has sent no heartbeat is not watched
        wait(lambda: state(daemon) == "")
        endpoint.heartbeat_start(0.2)
        assert told() == b"alive"
        wait(lambda: state(daemon) == "alive")
        wait(lambda: daemon.metric("sources_alive") >= 1)
        endpoint.close()
        states = [told()]
        while states[-1] != b"dead":
            states.append(told())
        # On a busy host it may have seemed silent for a moment before.
        assert states[-2:] == [b"silent", b"dead"]
        assert set(states[:-1]) <= {b"silent", b"alive"}
        wait(lambda: state(daemon) == "dead")
        endpoint.open()
        endpoint.beat()
        assert told() == b"alive"
        wait(lambda: state(daemon) in ("alive", "silent"))


def test_the_heartbeats_of_a_daemon_are_heard_by_an_endpoint(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a", {"heartbeat": {"interval": "100ms"}}) as daemon:
        assert daemon.process is not None
        name = f"relay01/bccnd/{daemon.process.pid}"
        with bccnd.Endpoint("relay02/direct/7", BROADCAST, daemon.port) as endpoint:
            found: list[bccnd.Message] = []
            endpoint.listen("heartbeat/>", found.append)
            wait(lambda: endpoint.dispatch() and len(found) >= 3)
        assert {(one.src, one.chan, one.payload) for one in found} == {(name, f"heartbeat/{name}", b"")}
        assert [one.seq - found[0].seq for one in found] == list(range(len(found)))


def test_the_tool_talks_to_clients_of_a_daemon_without_it(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a", start=False) as daemon:
        daemon.configure({"integrity": daemon.with_key(KEY)})
        daemon.start()
        key = str(daemon.folder / "key0")
        with daemon.connect("x/") as client, Sub(daemon.port, "-n", "2", "x/", "--key", key, "--name", "t/1") as sub:
            assert bccn("pub", *direct(daemon.port), "--key", key, "x/y", "no daemon needed").returncode == 0
            assert payloads(client, 1) == [b"no daemon needed"]
            client.send_to("t/1", b"for you")
            assert sub.end() == (0, b"x/y no daemon needed\n!t/1 for you\n", b"")


# -- between hosts


@pytest.mark.root
@pytest.mark.parametrize(
    ("address", "peer"),
    [("10.77.0.255", r"10\.77\.0\.1:5400"), ("239.1.2.3", r"10\.77\.0\.1:5400"), ("ff02::bcc", r"\[fe80::.*\]:5400")],
)
def test_two_hosts_without_any_daemon_talk(net: Net, tmp_path: Path, address: str, peer: str) -> None:
    key = key_file(tmp_path / "key")
    options = ["--interface", "lan0", "--key", str(key)]
    with Sub(PORT, "--json", "-n", "1", *options, address=address, on=net.on("b")) as sub:
        done = bccn("pub", "--direct", "--address", address, *options, "x", "over the wire", on=net.on("a"))
        assert done.returncode == 0, done.stderr
        status, out, _ = sub.end()
    assert status == 0
    message = json.loads(out)
    assert message["payload"] == "over the wire"
    assert re.fullmatch(peer, message["peer"])


@pytest.mark.root
def test_publishing_faster_than_the_wire_takes_it_waits_for_the_wire(net: Net) -> None:
    """The loopback interface takes everything at once; a real one lets a socket that is ahead of it wait."""
    net.run("a", "sh", "-c", "tc qdisc add dev lan0 root tbf rate 8mbit burst 3000 latency 20s")
    lines = b"".join(b"%d\n" % number for number in range(1500))
    with Sub(PORT, "-n", "1500", "--interface", "lan0", address="10.77.0.255", on=net.on("b")) as sub:
        where = ["--direct", "--address", "10.77.0.255", "--interface", "lan0"]
        printed: list[bytes] = []
        reader = threading.Thread(target=lambda: printed.append(sub.end()[1]))
        reader.start()
        try:
            done = bccn("pub", *where, "x", stdin=lines, on=net.on("a"))
            assert (done.returncode, done.stderr) == (0, b"")
        except BaseException:
            sub.process.kill()
            raise
        finally:
            reader.join()
    assert printed == [b"".join(b"x %d\n" % number for number in range(1500))]
