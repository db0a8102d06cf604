"""What commands end with, what they take, and what they print where nobody looks at a terminal; on a real bus."""

from __future__ import annotations

import inspect
import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import bccnd
from bccnd.cli.main import main
from bccnd.cli.shared.completion import JoiningBashComplete
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


def test_exit_codes_tell_a_refusal_a_timeout_and_a_missing_daemon_apart(bus: bccnd.Connection, tmp_path: Path) -> None:
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


def test_publishing_from_a_terminal_says_that_it_reads(bus: bccnd.Connection) -> None:
    master, slave = pty.openpty()
    command = [BCCN, "--socket", bus.path, "pub", "a"]
    try:
        with subprocess.Popen(command, stdin=slave, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "terminal" in process.stderr.readline()
            os.write(master, b"one\n\x04")
            assert process.wait(PATIENCE) == 0
    finally:
        os.close(master)
        os.close(slave)


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
def test_closed_and_full_streams_give_a_message_and_no_traceback(
    bus: bccnd.Connection, command: str, status: int
) -> None:
    done = in_shell(bus, command)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert bool(done.stderr) == (status != 0 and "2>&-" not in command)


def test_a_piped_table_has_one_line_for_each_record_however_long(
    bus: bccnd.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
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


def each_command(command: click.Command, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from each_command(inner, *words, name)


def test_completion_offers_files_for_whatever_takes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key.pub").touch()
    takes_file = re.compile(r"FILE|DIR|PATH|JOURNAL|TABLES|CAPTURE")
    seen = 0
    for words, command in each_command(main):
        context = click.Context(command, info_name="bccn")
        for param in command.params:
            if takes_file.search(f"{param.metavar or ''} {param.make_metavar(context)}"):
                seen += 1
                incomplete = "relay/=" if "=" in (param.metavar or "") else ""
                found = param.shell_complete(context, incomplete)
                assert any(one.type == "file" or one.value == "relay/=key.pub" for one in found), (words, param.name)
    assert seen > 30


def test_every_command_with_json_takes_safe_numbers() -> None:
    for words, command in each_command(main):
        names = {name for param in command.params for name in param.opts}
        assert ("--json" in names) == ("--safe-numbers" in names), words


def test_bash_completes_the_file_of_a_signer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/relay.pub").touch()
    monkeypatch.chdir(tmp_path)
    complete = JoiningBashComplete(main, {}, "bccn", "_BCCN_COMPLETE")
    for line, wanted in (
        ("bccn direct sub --signer relay = ke", ["file,"]),
        ("bccn direct sub --signer relay = keys/", ["file,"]),
        ("bccn direct sub --signer relay = nothing", []),
        ("bccn --socket = ke", ["file,ke"]),
        ("bccn direct sub --sig", ["plain,--signer"]),
    ):
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        args, incomplete = complete.get_completion_args()
        found = [complete.format_completion(one) for one in complete.get_completions(args, incomplete)]
        assert found == wanted, line


def every_command(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            yield from every_command(click.Context(command, info_name=name, parent=context))


def test_examples_in_help_texts_keep_their_lines() -> None:
    texts = {
        one.command_path: inspect.cleandoc(one.command.help or "")
        for one in every_command(click.Context(main, info_name="bccn"))
    }
    assert sum("\b\n" in text for text in texts.values()) > 10
    # click keeps the lines of a paragraph that this mark begins, if it stands on a line of its own.
    assert [name for name, text in texts.items() if text.count("\b") != text.count("\b\n")] == []
