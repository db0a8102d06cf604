"""`bccn broker-sub` against a broker that is played byte by byte."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from bccnd.cli.broker_sub import Bye, Place, as_json, as_line, read_order, read_place
from bccnd.cli.main import main
from bccnd.gateways.broker_codec import Delivered, message, request
from tests.e2e.harness import BIN, PATIENCE
from tests.support import Closing


class Broker(Closing):
    """The other end of one subscriber."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        self.port = int(self.listener.getsockname()[1])
        self.sock = self.listener
        self.tool: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run the tool, and accept it."""
        command = [str(BIN / "bccn"), "broker-sub", f"127.0.0.1:{self.port}", *arguments]
        self.tool = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.sock, _ = self.listener.accept()
        self.sock.settimeout(PATIENCE)
        return self.tool

    def hear(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self.sock.recv(count - len(data))
            assert chunk, data
            data += chunk
        return data

    def end(self) -> tuple[int, str, str]:
        """Status, output and complaints of the tool, which ends by itself."""
        assert self.tool is not None
        out, err = self.tool.communicate()
        return self.tool.returncode, out.decode(), err.decode()

    def close(self) -> None:
        self.sock.close()
        self.listener.close()
        if self.tool is not None:
            self.tool.kill()
            self.tool.communicate()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


def test_it_says_its_id_then_its_topics_and_prints_what_comes(broker: Broker) -> None:
    broker.start("--id", "C1", "-n", "4", "upb/*", "a/+")
    assert broker.hear(11) == b"C1" + bytes(9)
    assert broker.hear(104) == request(0, b"upb/*") + request(0, b"a/+")
    values = [
        (b"upb/temp", 1, bytes.fromhex("097e"), "upb/temp - SHORT_REAL - 24.30"),
        (b"a/b", 0, bytes.fromhex("010000000a"), "a/b - INT - -10"),
        (b"upb/p", 2, bytes.fromhex("00009a9c2004"), "upb/p - FLOAT - 1013.2512"),
        (b"x\x1b[31m", 3, b"red\x1b[0m\xff", "x\\x1b[31m - STRING - red\\x1b[0m\\xff"),
    ]
    stream = b"".join(message("10.0.0.7:4000", *value[:3]) for value in values)
    # In pieces that have nothing to do with messages.
    for first, end in ((0, 1000), (1000, 3000), (3000, None)):
        broker.sock.sendall(stream[first:end])
    assert broker.end() == (0, "".join(f"10.0.0.7:4000 - {value[3]}\n" for value in values), "")


def test_commands_come_on_standard_input_and_wrong_ones_are_told(broker: Broker) -> None:
    tool = broker.start("--id", "C1")
    assert tool.stdin is not None
    tool.stdin.write(b"subscribe a/b\n\nshout\nsubscribe " + b"x" * 51 + b"\n  unsubscribe   a/b \nexit\n")
    assert broker.hear(11 + 3 * 52)[11:] == request(0, b"a/b") + request(1, b"a/b") + request(2)
    assert broker.sock.recv(1) == b""
    status, out, err = broker.end()
    assert (status, out) == (0, "")
    first, second = err.splitlines()
    assert "'shout'" in first
    assert "51" in second


def test_the_end_of_standard_input_ends_nothing_else(broker: Broker) -> None:
    tool = broker.start("--id", "C1", "--json", "-n", "2")
    assert tool.stdin is not None
    tool.stdin.close()
    tool.stdin = None
    broker.sock.sendall(message("127.0.0.1:1", b"t", 3, b"text") + message("127.0.0.1:1", b"t", 3, b"\xff"))
    status, out, err = broker.end()
    assert (status, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"peer": "127.0.0.1:1", "topic": "t", "type": "STRING", "value": "text"},
        {"peer": "127.0.0.1:1", "topic": "t", "type": "STRING", "value_base64": "/w=="},
    ]


def test_a_broker_that_turns_it_away_or_is_none_is_told_of_in_a_line(broker: Broker) -> None:
    with Broker() as other:
        other.start("--id", "C1")
        other.sock.sendall(b"\xff" * 1603)
        status, _, err = other.end()
        assert (status, "is no message of a broker\n  remedy: " in err) == (1, True)
    broker.start("--id", "C1")
    broker.hear(11)
    broker.sock.close()
    status, out, err = broker.end()
    assert (status, out) == (1, "")
    assert f"127.0.0.1:{broker.port} has closed the connection\n  remedy: " in err
    assert "Traceback" not in err


def test_when_the_time_is_over_it_ends_with_what_it_has(broker: Broker) -> None:
    broker.start("--id", "C1", "-t", "0.3", "-n", "2")
    broker.sock.sendall(message("127.0.0.1:1", b"t", 3, b"one"))
    assert broker.end() == (1, "127.0.0.1:1 - t - STRING - one\n", "")


def test_nobody_there_is_a_failure_and_a_bad_command_line_is_bad_usage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    address = f"127.0.0.1:{port}"
    for arguments, status, said in (
        ((address, "--id", "C1"), 1, f"{address}: Connection refused\n  remedy: "),
        *(
            ((place, "--id", name, *topics), 2, "")
            for place, name, *topics in (
                ("127.0.0.1", "C1"),
                (address, "elevenbytes"),
                (address, ""),
                (address, "C1", "x" * 51),
            )
        ),
        ((address,), 2, ""),
    ):
        done = CliRunner().invoke(main, ["broker-sub", *arguments])
        assert (done.exit_code, said in done.stderr, done.stdout) == (status, True, ""), done.stderr


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("127.0.0.1:5401", Place("127.0.0.1", 5401)),
        ("relay01:1", Place("relay01", 1)),
        ("[::1]:65535", Place("::1", 65_535)),
        *(
            (bad, None)
            for bad in ("relay01", ":5401", "a:0", "a:65536", "a:99999999", "a:x", "::1:5401", "[a]:1", "[::1")
        ),
    ],
)
def test_where_a_broker_is(text: str, place: Place | None) -> None:
    assert read_place(text) == place
    if place is not None:
        assert str(place) == text


def test_a_command_is_read_as_it_was_meant() -> None:
    assert read_order(b"subscribe a b/c") == request(0, b"a b/c")
    assert read_order(b" \t") is None
    with pytest.raises(Bye):
        read_order(b"exit")
    for wrong in (b"exit now", b"subscribe", b"unsubscribe ", b"Subscribe a"):
        with pytest.raises(ValueError, match="no command"):
            read_order(wrong)


def test_nothing_that_came_can_move_a_cursor() -> None:
    hostile = bytes(range(256))
    line = as_line(Delivered(hostile, hostile, 3, hostile))
    assert line.isprintable()
    assert json.loads(as_json(Delivered(hostile, hostile, 3, hostile)))["topic"].startswith("\x00\x01")


def test_a_broker_that_has_gone_is_told_where_something_is_to_be_sent_to_it(broker: Broker) -> None:
    tool = broker.start("--id", "C1")
    broker.hear(11)
    assert tool.stdin is not None
    tool.send_signal(signal.SIGSTOP)
    broker.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    broker.sock.close()
    tool.stdin.write(b"subscribe a\nsubscribe b\n")
    tool.send_signal(signal.SIGCONT)
    status, _, said = broker.end()
    assert (status, "the broker at" in said) == (1, True)
