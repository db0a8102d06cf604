"""`bccn pipe`: lines in, lines out, with a real daemon that is killed, and with programs that read too slowly."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bccnd
from bccnd.cli.pipe.json_lines import MAX_LEVELS, MAX_LINE, BadLineError, read_operation, write_line
from bccnd.core.formats.strict_json import nested_deeper
from tests.e2e.harness import BIN, Daemon
from tests.support import PATIENCE, Closing, wait

SYNC = {"op": "sync", "id": "the end"}


class Pipe(Closing):
    """A ``bccn pipe`` that runs: ``lines`` are those that it has written so far."""

    def __init__(self, daemon: Daemon, *arguments: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [str(BIN / "bccn"), "--socket", str(daemon.bus), "pipe", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def send(self, *operations: object) -> None:
        assert self.process.stdin is not None
        for one in operations:
            line = one if isinstance(one, bytes) else json.dumps(one).encode()
            self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def take(self, count: int) -> list[dict[str, Any]]:
        """The next lines."""
        wait(lambda: len(self.lines) >= count or self.process.poll() is not None, f"{count} lines")
        taken, self.lines = self.lines[:count], self.lines[count:]
        return taken

    def find(self, **fields: object) -> dict[str, Any]:
        """Wait for a line with these fields; forget those before."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            while self.lines and not found:
                line = self.lines.pop(0)
                if fields.items() <= line.items():
                    found.append(line)
            return bool(found)

        wait(there, f"{fields}")
        return found[0]

    def end(self) -> tuple[int, bytes]:
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status, self.process.stderr.read()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("pipe") / "d") as one:
        yield one


@pytest.fixture
def pipe(daemon: Daemon) -> Iterator[Pipe]:
    with Pipe(daemon) as one:
        yield one


def test_each_operation_is_answered_in_its_place(pipe: Pipe) -> None:
    pipe.send(
        {"op": "whoami", "id": [1, None]},
        {"op": "subscribe", "pattern": "a/", "id": 2},
        {"op": "publish", "chan": "a/b", "payload": "grüß", "id": 3},
        {"op": "publish", "chan": "a/b", "payload_base64": "/w=="},
        {"op": "unsubscribe", "pattern": "a/", "id": None},
        {"op": "publish", "chan": "a/b", "payload": "not received"},
        {"op": "send_all", "payload": "all", "id": 5},
        SYNC,
    )
    identity, subscribed, first, done, second, gone, everyone, sent, end = pipe.take(9)
    name = identity["src"]
    assert name.split("/")[1:] == ["bccn", str(pipe.process.pid)]
    assert identity == {"event": "identity", "src": name, "id": [1, None]}
    assert (subscribed, done) == ({"event": "done", "id": 2}, {"event": "done", "id": 3})
    assert (gone, sent, end) == ({"event": "done", "id": None}, {"event": "done", "id": 5}, {"event": "done", **_id()})
    assert int(second["seq"]) == int(first["seq"]) + 1
    assert first["received_ns"].isdigit()
    assert first["time"].endswith("Z")
    rest = {"event": "message", "src": name, "chan": "a/b", "form": "plain", "peer": "local"}
    assert first.items() >= {**rest, "payload": "grüß"}.items()
    assert second.items() >= {**rest, "payload_base64": "/w=="}.items()
    assert everyone.items() >= {"event": "message", "chan": "!", "form": "all", "payload": "all"}.items()
    pipe.send({"op": "send_to", "to": name, "payload": "me"})
    assert pipe.take(1)[0].items() >= {"chan": f"!{name}", "form": "directed", "payload": "me"}.items()
    assert pipe.end() == (0, b"")
    assert pipe.lines == []


def _id() -> dict[str, object]:
    return {"id": SYNC["id"]}


def refused(reason: str, about: str, **fields: object) -> dict[str, object]:
    return {"event": "refused", **fields, "reason": reason, "about": about}


def test_each_refusal_belongs_to_its_operation(pipe: Pipe) -> None:
    long = "x" * 2000
    pipe.send(
        {"op": "publish", "chan": "x", "payload": "fine", "id": 1},
        {"op": "publish", "chan": "x", "payload": long, "id": 2},
        {"op": "publish", "chan": "x", "payload": long},
        {"op": "publish", "chan": "x", "payload": "fine", "id": 3},
        {"op": "publish", "chan": "x", "payload": "fine"},
        {"op": "publish", "chan": "x", "payload": long, "id": 4},
        {"op": "publish", "chan": "two words", "id": 5},
        {"op": "publish", "chan": "a b"},
        {"op": "send_to", "to": "", "id": 6},
        {"op": "unsubscribe", "pattern": "never", "id": 7},
        {"op": "subscribe", "pattern": "y" * 1100, "id": 8},
        {"op": "subscribe", "pattern": "y" * 500_000, "id": 9},
        SYNC,
    )
    lines = pipe.take(12)
    unnumbered = [line for line in lines if "id" not in line]
    assert sorted(unnumbered, key=str) == sorted([refused("too_long", "x"), refused("bad_channel", "a b")], key=str)
    assert [line for line in lines if "id" in line] == [
        {"event": "done", "id": 1},
        refused("too_long", "x", id=2),
        {"event": "done", "id": 3},
        refused("too_long", "x", id=4),
        refused("bad_channel", "two words", id=5),
        refused("bad_target", "!", id=6),
        refused("not_subscribed", "never", id=7),
        refused("pattern_too_long", "y" * 64, id=8),
        refused("too_long", "y" * 1024, id=9),
        {"event": "done", **_id()},
    ]
    assert pipe.end() == (0, b"")


BAD = [
    b"",
    b"no JSON",
    b"[]",
    b"{}",
    b'{"op": 1}',
    b'{"op": "dance"}',
    b'{"op": "subscribe"}',
    b'{"op": "subscribe", "pattern": 1}',
    b'{"op": "sync", "more": ""}',
    b'{"op": "publish", "chan": "a", "src": "me"}',
    b'{"op": "publish", "chan": "a", "payload": "x", "payload_base64": "eA=="}',
    b'{"op": "publish", "chan": "a", "payload_base64": "?"}',
    b'{"op": "publish", "chan": "a", "payload": "' + b"x" * MAX_LINE + b'"}',
    b"[" * 100_000,
    b"\xff\xfe",
    *(
        b'{"op": "sync", "id": %b}' % value
        for value in (b"NaN", b"-Infinity", b"[1e999]", b'{"a": -1e400}', b"9" * 5000)
    ),
    *(b'{"op": "sync", "id": %b1%b}' % (b"[" * levels, b"]" * levels) for levels in (65, 970, 5000)),
    b'{"op": "subscribe", "pattern": "\\u0000x"}',
    b'{"op": "unsubscribe", "pattern": "a\\u0000"}',
    b'{"op": "publish", "chan": "a\\u0000b"}',
    b'{"op": "send_to", "to": "a\\u0000b"}',
]


def test_a_bad_line_is_reported_by_its_number_and_has_no_effect(pipe: Pipe) -> None:
    pipe.send({"op": "subscribe", "pattern": ""}, *BAD, {"op": "publish", "chan": "a", "payload": "fine"}, SYNC)
    lines = pipe.take(len(BAD) + 2)
    errors = [line for line in lines if line["event"] == "error"]
    assert [(line["reason"], line["line"]) for line in errors] == [("bad_line", n) for n in range(2, len(BAD) + 2)]
    assert [line["payload"] for line in lines if line["event"] == "message"] == ["fine"]
    for line in BAD:
        with pytest.raises(BadLineError):
            read_operation(line)


def test_all_is_published_before_the_end(daemon: Daemon) -> None:
    lines = b"".join(b'{"op": "publish", "chan": "last/%d", "payload": "x"}\n' % number for number in range(800))
    with daemon.connect() as bus, bus.subscribe("last/", limit=1000) as last:
        bus.sync()
        done = subprocess.run(
            [str(BIN / "bccn"), "--socket", str(daemon.bus), "pipe"],
            input=lines.removesuffix(b"\n"),
            capture_output=True,
            check=True,
            timeout=PATIENCE,
        )
        assert done.stdout == b""
        got = [last.receive(PATIENCE) for _ in range(800)]
    assert [one.chan for one in got if isinstance(one, bccnd.Message)] == [f"last/{number}" for number in range(800)]


def test_the_daemon_goes_and_comes_back(tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, Pipe(daemon, "--program", "door") as pipe:
        pipe.send({"op": "subscribe", "pattern": "a/"}, {"op": "whoami"})
        name = pipe.take(1)[0]["src"]
        assert name.endswith(f"/bccn/{pipe.process.pid}/door")
        daemon.kill()
        assert pipe.take(1) == [{"event": "away"}]
        pipe.send({"op": "subscribe", "pattern": "b/", "id": 1}, {"op": "publish", "chan": "b/c", "id": 2})
        daemon.start()
        lines = pipe.take(3)
        if refused("connection_lost", "b/c", id=2) in lines:  # the start took longer than a message waits
            assert [line for line in lines if "reason" not in line] == [{"event": "back"}, {"event": "done", "id": 1}]
        else:
            lines += pipe.take(1)
            assert lines[0] == {"event": "back"}
            assert [line["event"] for line in lines[1:]] in (["done", "message", "done"], ["message", "done", "done"])
        pipe.send({"op": "publish", "chan": "a/b", "payload": "as before"}, {"op": "whoami"}, SYNC)
        assert pipe.find(event="message")["payload"] == "as before"
        assert pipe.find(event="identity")["src"] == name
        daemon.kill()
        pipe.find(event="away")
        status, error = pipe.end()
        assert (status, bool(error)) == (4, True)
        daemon.start()


def test_what_a_slow_reader_loses_is_told_and_input_goes_on(tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, daemon.connect() as bus:
        process = subprocess.Popen(
            [str(BIN / "bccn"), "--socket", str(daemon.bus), "pipe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b'{"op": "subscribe", "pattern": "a", "id": 1}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == {"event": "done", "id": 1}
            sent = 20_000
            for _ in range(sent):
                bus.publish("a", b"x" * 1000)
            bus.subscribe("b")
            assert bus.sync(PATIENCE) == []
            for number in range(3000):
                process.stdin.write(b'{"op": "publish", "chan": "b", "payload": "%d"}\n' % number)
            process.stdin.flush()
            got = [bus.receive(PATIENCE) for _ in range(1000)]  # though nobody reads what comes out
            assert all(isinstance(one, bccnd.Message) for one in got)
            process.stdin.close()
            lines = [json.loads(line) for line in process.stdout]
            received = sum(line["event"] == "message" for line in lines)
            lost = sum(line["lost"] for line in lines if line["event"] == "gap")
            assert lost > 0
            assert received + lost == sent


def test_ends_as_other_programs_do(daemon: Daemon, tmp_path: Path) -> None:
    with Pipe(daemon) as pipe:
        pipe.send({"op": "whoami"})
        pipe.take(1)
        pipe.process.send_signal(signal.SIGTERM)
        assert pipe.process.wait(PATIENCE) == -signal.SIGTERM
    with Pipe(daemon, "--program", "two words") as pipe:
        assert pipe.process.wait(PATIENCE) == 1
    command = [str(BIN / "bccn"), "--socket", str(tmp_path / "nowhere"), "pipe"]
    assert subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 4
    with Daemon(tmp_path / "few", {"bus": {"max_clients": 1}}) as few, few.connect() as bus:
        bus.sync()
        with Pipe(few) as pipe:
            assert pipe.process.wait(PATIENCE) == 1


ids = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**4000), 10**4000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(ids, st.integers(0, 60))
def test_an_id_comes_back_as_it_was(value: object, levels: int) -> None:
    for _ in range(levels):
        value = [value]
    if nested_deeper(value, MAX_LEVELS):
        return
    answers = read_operation(json.dumps({"op": "sync", "id": value}).encode()).answers
    assert json.loads(write_line("done", answers))["id"] == value
