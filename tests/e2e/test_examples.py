"""The examples in other languages, run as their first lines say; in the quick tests only those in C."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import bccnd
from bccnd.version import VERSION
from tests.e2e.harness import PATIENCE, Daemon, Wire, datagram, payloads, wait
from tests.e2e.subscribers import LANGUAGES, SOCKET, THOROUGH, Examples, Subscriber, examples
from tests.support import ROOT

__all__ = ["examples"]

#: a program with a loop of its own that receives once each time the descriptor is readable
OWN_LOOP = """use Bccn;
$| = 1;
my $bus = Bccn->connect( $ARGV[0], subscribe => ['own/'] );
while ( IO::Select->new( $bus->{socket} )->can_read ) {
    my $got = $bus->receive(0);
    print "$got->{payload}\\n" if $got;
}
"""
BINARY = bytes(range(256)) + b"\n\0\n"
LARGEST = b"x" * (409_600 - len("MSG demo/x") - 1)


every_language = pytest.mark.parametrize(
    "language", [pytest.param(one, marks=[pytest.mark.slow] if one != "c" else []) for one in LANGUAGES]
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests that leave it as it was; little waits for a client that does not read."""
    with Daemon(tmp_path_factory.mktemp("daemon"), {"bus": {"queue": {"messages": 100}}}) as daemon:
        yield daemon


def next_message(client: bccnd.Connection) -> bccnd.Message:
    event = client.receive(PATIENCE)
    assert isinstance(event, bccnd.Message), event
    return event


@every_language
def test_an_example_does_what_its_first_lines_say(daemon: Daemon, examples: Examples, language: str) -> None:
    folder = examples.folder(language)

    def at_this_bus(line: str) -> list[str]:
        return ["sh", "-c", line.replace(SOCKET, str(daemon.bus))]

    with Wire(daemon.port) as wire, daemon.connect("demo/") as client:
        (line,) = examples.lines(language, 1)
        with Subscriber(daemon, folder, at_this_bus(line)) as subscriber:
            wire.send(datagram(f"relay02/{language}/1", 1, "demo/x", "21.5"))
            subscriber.wait_for(b"relay02/%b/1 demo/x 21.5\n" % language.encode())
            next_message(client)
            for line in examples.lines(language, 2):
                done = subprocess.run(at_this_bus(line), cwd=folder, capture_output=True, timeout=PATIENCE, check=False)
                assert (done.returncode, done.stderr) == (0, b"")
            for chan, payload in (("hello", b"hello, world"), ("lines", b"one"), ("lines", b"two")):
                subscriber.wait_for(b" demo/%b %b" % (chan.encode(), payload))
                message = next_message(client)
                assert (message.chan, message.payload) == (f"demo/{chan}", payload)
                assert wire.receive(b"demo/%b|" % chan.encode()).endswith(b"|" + payload)
            assert subscriber.complained() == b""


@every_language
def test_payloads_are_sent_and_printed_byte_for_byte(daemon: Daemon, examples: Examples, language: str) -> None:
    lines = [b"", b"  %s \\n $HOME `id` \"' ", BINARY.replace(b"\n", b""), b"W" * 1000, b"the last, without an end"]
    if language == "shell":
        lines = [line.replace(b"\0", b"") for line in lines]
    arguments = [b"", b"two\nlines", b"%s \\n $HOME `id` \"'", BINARY.replace(b"\0", b""), b"-n"]
    printed = b""
    with examples.subscribe(language, daemon) as subscriber, daemon.connect("demo/") as client:
        for words, stdin, sent in [*(([one], b"", [one]) for one in arguments), ([], b"\n".join(lines), lines)]:
            done = examples.publish(language, daemon.bus, "demo/x", *words, stdin=stdin)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
            messages = [next_message(client) for _ in sent]
            assert [message.payload for message in messages] == sent
            # One packet for each, from one program.
            assert len({message.src for message in messages}) == 1
            printed += b"".join(b"%b demo/x %b\n" % (message.src.encode(), message.payload) for message in messages)
        client.publish("other/", b"not subscribed")
        client.publish("demo/end", b"L" * 200_000 + b"!")
        subscriber.wait_for(b"L!\n")
        assert subscriber.printed().rpartition(client.identity().encode())[0] == printed
        assert len(payloads(client, 1)) == 1
        if language in THOROUGH:
            # The largest stays on this host, and what is larger is sent to none.
            done = examples.publish(language, daemon.bus, "demo/x", stdin=LARGEST)
            assert (done.returncode, b"refused: too_long demo/x" in done.stderr) == (1, True)
            assert payloads(client, 1) == [LARGEST]
            assert examples.publish(language, daemon.bus, "demo/x", stdin=LARGEST + b"x").returncode == 1


@every_language
def test_a_publisher_says_what_was_refused(tmp_path: Path, daemon: Daemon, examples: Examples, language: str) -> None:
    done = examples.publish(language, daemon.bus, "no good", stdin=b"y\nz")
    assert (done.returncode, done.stdout, done.stderr.count(b"refused: bad_channel no good")) == (1, b"", 2)
    nowhere = str(tmp_path / "bus.sock")
    done = examples.publish(language, nowhere, "demo/x", "y")
    assert (done.returncode, nowhere.encode() in done.stderr) == (1, True)
    done = examples.publish(language, nowhere)
    assert (done.returncode, b"usage:" in done.stderr) == (2, True)
    for arguments, status in (([nowhere, "demo/"], 1), ([nowhere], 2)) if language in THOROUGH else ():
        command = [*examples.program(language, 1), *arguments]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
        assert (done.returncode, bool(done.stderr)) == (status, True)


@every_language
def test_what_a_stopped_subscriber_misses_is_told(daemon: Daemon, examples: Examples, language: str) -> None:
    # Of batches, a socket holds more.
    count = 2000 if language == "shell" else 20_000
    with examples.subscribe(language, daemon, "flood/") as subscriber, daemon.connect() as client:
        subscriber.signal(signal.SIGSTOP)
        for number in range(count):
            client.publish("flood/x", b"%d\n" % number)
        assert client.sync(PATIENCE) == []
        subscriber.signal(signal.SIGCONT)

        def reported() -> tuple[list[int], int]:
            text = subscriber.printed()
            lost = re.findall(rb"(\d+) messages were lost", subscriber.complained())
            return [int(number) for number in re.findall(rb" flood/x (\d+)\n", text)], sum(map(int, lost))

        wait(lambda: len(reported()[0]) + reported()[1] >= count, f"{count} messages and gaps, not {reported()}")
        numbers, lost = reported()
        assert lost > 0
        assert numbers == sorted(set(numbers))
        assert len(numbers) + lost == count


def test_a_loop_that_receives_once_a_time_does_not_stall(daemon: Daemon, tmp_path: Path) -> None:
    """In Perl; the header's and the Python clients' tests show the same of those."""
    source = tmp_path / "loop.pl"
    source.write_text(OWN_LOOP)
    command = ["perl", f"-I{ROOT / 'examples/perl'}", str(source), str(daemon.bus)]
    with Subscriber(daemon, tmp_path, command) as subscriber, daemon.connect() as client:
        for turn in range(3):
            client.publish_many(("own/x", f"{turn} {number}") for number in range(50))
            subscriber.wait_for(b"%d 49\n" % turn)
        assert subscriber.printed() == b"".join(b"%d %d\n" % (turn, n) for turn in range(3) for n in range(50))


def test_what_programs_include_has_the_packages_version() -> None:
    # Between two releases they have the number of the next one.
    release = VERSION.partition(".dev")[0]
    for path in ("examples/c/bccn.h", "examples/go/bccn.go", "examples/perl/Bccn.pm", "packaging/bccn.pc"):
        found = re.search(r"""(?i)version['" :=]*['" ](\d+\.\d+\.\d+)""", (ROOT / path).read_text())
        assert found is not None, path
        assert found[1] == release, path
