"""What commands end with, what they take, and what they print where nobody looks at a terminal; on a real bus."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import bccnd
from bccnd.cli.shared.output import print_table, to_json
from tests.e2e.harness import BIN
from tests.support import PATIENCE, Hub, turning

BCCN = str(BIN / "bccn")


@pytest.fixture
def bus(hub: Hub) -> Iterator[bccnd.Connection]:
    """A client of a bus that serves."""
    with turning(hub.loop), bccnd.connect(hub.path) as connection:
        yield connection


def bccn(bus: bccnd.Connection, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [BCCN, "--socket", bus.path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def in_shell(bus: bccnd.Connection, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command line, in which ``bccn`` has the socket of this bus."""
    env = {**os.environ, "BCCN_SOCKET": bus.path, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE, check=False, env=env)


def test_exit_codes_tell_failures_apart(bus: bccnd.Connection, tmp_path: Path) -> None:
    assert bccn(bus, "pub", "a", "x").returncode == 0
    assert bccn(bus, "pub", "two words", "x").returncode == 3
    assert bccn(bus, "sub", "-n", "1", "-t", "0.1", "a").returncode == 5
    assert bccn(bus, "sub", "-t", "0.1", "a").returncode == 0
    assert bccn(bus, "pub").returncode == 2
    nowhere = subprocess.run([BCCN, "--socket", str(tmp_path / "x"), "pub", "a", "x"], capture_output=True, check=False)
    assert nowhere.returncode == 4


@pytest.mark.parametrize("number", ["-21.5", "-1", "-.5", "-2e-3"])
def test_a_negative_number_is_a_payload(bus: bccnd.Connection, number: str) -> None:
    bus.subscribe("a")
    bus.sync()
    for options in (["a", number], ["--repeat", "1", "a", number], ["a", number, "--repeat", "1"]):
        assert bccn(bus, "pub", *options).returncode == 0
        message = bus.receive(PATIENCE)
        assert isinstance(message, bccnd.Message)
        assert message.text == number
    assert bccn(bus, "pub", "a", "-x").returncode == 2


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("bccn clients >&-", 1),
        ("bccn clients >/dev/full", 1),
        ("bccn sub -n 1 -t 5 '!/x' >/dev/full & sleep 0.7; bccn pub '!/x' y; wait $!", 1),
        ("bccn pub a <&-", 1),
        ("bccn pub -s a <&-", 1),
        ("bccn pub a x >&-", 0),
        ("bccn pub a x <&- >&- 2>&-", 0),
        ("bccn clients >&- 2>&-", 1),
        ("bccn --help >/dev/full", 1),
        ("bccnd --help >/dev/full", 1),
        ("bccn-sbusd --version >/dev/full", 1),
        ("bccnd --version >&-", 0),
    ],
)
def test_closed_and_full_streams_give_no_traceback(bus: bccnd.Connection, command: str, status: int) -> None:
    done = in_shell(bus, command)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert bool(done.stderr) == (status != 0 and "2>&-" not in command)


def test_a_piped_table_has_one_line_for_each_record(bus: bccnd.Connection, capsys: pytest.CaptureFixture[str]) -> None:
    bus.subscribe(*(f"{number}/{'x' * 100}" for number in range(5)))
    bus.sync()
    lines = bccn(bus, "clients").stdout.splitlines()
    assert len(lines) == 3  # titles, this client, and bccn itself
    assert max(map(len, lines)) > 400
    print_table(["a", "b"], [["世界", "1"], ["x\n", "2"]])
    assert capsys.readouterr().out == "a     b\n世界  1\nx\\n   2\n"


def test_json_has_a_readable_time_and_text_for_what_is_none(bus: bccnd.Connection) -> None:
    command = [BCCN, "--socket", bus.path, "sub", "--json", "-n", "2", ""]
    for flag, kind in (([], int), (["--safe-numbers"], str)):
        with subprocess.Popen([*command, *flag], stdout=subprocess.PIPE) as process:
            while "" not in _patterns(bus):
                pass
            bus.publish("a", b"\xff")
            bus.publish("\udcff", "text")
            assert process.stdout is not None
            first, second = (json.loads(line) for line in process.stdout)
        assert (first["chan"], first["payload_base64"], type(first["received_ns"])) == ("a", "/w==", kind)
        assert first["time"].endswith("Z")
        assert "T" in first["time"]
        assert (second["chan_base64"], second["payload"]) == ("/w==", "text")
    assert to_json({"a": [2**60]}) == '{"a": [1152921504606846976]}'


def _patterns(bus: bccnd.Connection) -> list[str]:
    rows = json.loads(bus.ask("!/bccn/stats", "clients"))["items"]
    return [pattern for row in rows for pattern in row["patterns"]]
