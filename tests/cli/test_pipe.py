"""`bccn pipe`: lines in, lines out, with a real daemon that is killed, and with programs that read too slowly."""

from __future__ import annotations

import json
import signal
import subprocess
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
from tests.support import PATIENCE, Closing

SYNC = {"op": "sync", "id": "the end"}


class Pipe(Closing):
    """A ``bccn pipe`` that runs; its lines are read as the test asks for them."""

    def __init__(self, daemon: Daemon, *arguments: str) -> None:
        ends = subprocess.PIPE
        command = daemon.tool_command("pipe", *arguments)
        self.process = subprocess.Popen(command, stdin=ends, stdout=ends, stderr=ends)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout

    def send(self, *operations: object) -> None:
        for one in operations:
            self.input.write((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n")
        self.input.flush()

    def take(self, count: int) -> list[dict[str, Any]]:
        """The next lines."""
        return [json.loads(self.output.readline()) for _ in range(count)]

    def find(self, **fields: object) -> dict[str, Any]:
        """The next line with these fields."""
        while not fields.items() <= (line := self.take(1)[0]).items():
            pass
        return line

    def end(self) -> tuple[int, list[dict[str, Any]], bytes]:
        """Close its input; return its status, the lines that were left, and what is on standard error."""
        self.input.close()
        lines = [json.loads(line) for line in self.output]
        assert self.process.stderr is not None
        return self.process.wait(PATIENCE), lines, self.process.stderr.read()

    def close(self) -> None:
        with self.process:  # which closes its streams
            self.process.kill()


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
    assert pipe.end() == (0, [], b"")


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
    assert pipe.end() == (0, [], b"")


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
        done = daemon.tool("pipe", stdin=lines.removesuffix(b"\n"))
        assert (done.returncode, done.stdout) == (0, b"")
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
        status, _, error = pipe.end()
        assert (status, bool(error)) == (4, True)
        daemon.start()


def test_what_a_slow_reader_loses_is_told_and_input_goes_on(tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, daemon.connect() as bus, Pipe(daemon) as pipe:
        pipe.send({"op": "subscribe", "pattern": "a", "id": 1})
        assert pipe.take(1) == [{"event": "done", "id": 1}]
        sent = 20_000
        for _ in range(sent):
            bus.publish("a", b"x" * 1000)
        bus.subscribe("b")
        assert bus.sync(PATIENCE) == []
        pipe.send(*({"op": "publish", "chan": "b", "payload": f"{number}"} for number in range(3000)))
        got = [bus.receive(PATIENCE) for _ in range(1000)]  # though nobody reads what comes out
        assert all(isinstance(one, bccnd.Message) for one in got)
        status, lines, _ = pipe.end()
        received = sum(line["event"] == "message" for line in lines)
        lost = sum(line["lost"] for line in lines if line["event"] == "gap")
        assert (status, lost > 0, received + lost) == (0, True, sent)


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
