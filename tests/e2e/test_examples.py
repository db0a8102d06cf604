"""The examples in other languages, run as their first lines say, and the header for C; in the fast tests only C."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import bccnd
from bccnd.core.wire import frames
from bccnd.errors import BadFrame
from bccnd.version import VERSION
from tests.e2e.harness import PATIENCE, Daemon, Wire, datagram, wait
from tests.e2e.subscribers import (
    HEADER,
    LANGUAGES,
    SANITIZED,
    SOCKET,
    THOROUGH,
    Examples,
    Subscriber,
    check,
    compiled,
    examples,
)
from tests.support import ROOT, Closing

__all__ = ["check", "examples"]

#: their subscribers use batch mode
BATCHING = ("c", "go", "perl", "python")
#: programs with a loop of their own that receive once each time the descriptor is readable
OWN_LOOPS = {
    "c": """#include "bccn.h"
#include <sys/select.h>
int main(int argc, char **argv)
{
	static char buffer[BCCN_BUFFER];
	static const char *const controls[] = {"!/bccn/meta/on", NULL}, *const patterns[] = {"own/", NULL};
	struct bccn_plan plan = {argv[argc - 1], controls, patterns};
	struct bccn_event got;
	struct bccn bus;
	fd_set ready;

	if (bccn_join(&bus, &plan, buffer, sizeof buffer))
		return 1;
	for (;;) {
		FD_ZERO(&ready);
		FD_SET(bus.fd, &ready);
		if (select(bus.fd + 1, &ready, NULL, NULL, NULL) == 1 && bccn_receive(&bus, 0, &got) > 0)
			puts(got.payload);
		fflush(stdout);
	}
}
""",
    "perl": """use Bccn;
$| = 1;
my $bus = Bccn->connect( $ARGV[0], subscribe => ['own/'] );
while ( IO::Select->new( $bus->{socket} )->can_read ) {
    my $got = $bus->receive(0);
    print "$got->{payload}\\n" if $got;
}
""",
    "python": """import select, sys, bccnd
bus = bccnd.connect(sys.argv[1])
bus.subscribe("own/")
while select.select([bus], [], []):
    if got := bus.receive(0):
        print(got.text, flush=True)
""",
}

BINARY = bytes(range(256)) + b"\n\0\n"
MAX_PACKET = 409_600


def these(languages: Iterable[str]) -> pytest.MarkDecorator:
    """Run a test for each of these languages; in the fast tests only for C."""
    return pytest.mark.parametrize(
        "language", [pytest.param(one, marks=[pytest.mark.slow] if one != "c" else []) for one in languages]
    )


every_language, every_thorough_one = these(LANGUAGES), these(THOROUGH)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests that leave it as it was; little waits for a client that does not read."""
    with Daemon(tmp_path_factory.mktemp("daemon"), {"bus": {"queue": {"messages": 100}}}) as daemon:
        yield daemon


def next_message(client: bccnd.Connection) -> bccnd.Message:
    event = client.receive(PATIENCE)
    assert isinstance(event, bccnd.Message), event
    return event


# -- the programs


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
def test_a_subscriber_prints_payloads_byte_for_byte(daemon: Daemon, examples: Examples, language: str) -> None:
    large = b"L" * 200_000 + b"."
    with examples.subscribe(language, daemon) as subscriber, Wire(daemon.port) as wire, daemon.connect() as client:
        wire.send(datagram(f"relay03/{language}/1", 1, "demo/wire", "\0binary\n\0"))
        subscriber.wait_for(b"demo/wire")
        for payload in (b"", BINARY, large):
            client.publish("demo/local", payload)
        client.publish("demo/end", b"!")
        client.publish("other/", b"not subscribed")
        subscriber.wait_for(b" demo/end !")
        wanted = [b"wire \0binary\n\0", b"local ", b"local " + BINARY, b"local " + large, b"end !"]
        senders = [f"relay03/{language}/1", *[client.identity()] * 4]
        lines = [b"%b demo/%b\n" % (src.encode(), one) for src, one in zip(senders, wanted, strict=True)]
        assert subscriber.printed() == b"".join(lines)


@every_language
def test_a_publisher_sends_payloads_byte_for_byte(daemon: Daemon, examples: Examples, language: str) -> None:
    def sent(*arguments: str | bytes, stdin: bytes = b"") -> None:
        done = examples.publish(language, daemon.bus, "demo/x", *arguments, stdin=stdin)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    with daemon.connect("demo/") as client, Wire(daemon.port) as wire:
        everything = BINARY.replace(b"\0", b"")
        for argument in (b"", b"two\nlines", b"%s \\n $HOME `id` \"'", everything, b"-n"):
            sent(argument)
            assert next_message(client).payload == argument
            assert wire.receive(b"demo/x|").endswith(b"|" + argument)
        lines = [b"", b"  %s \\n $HOME `id` \"' ", BINARY.replace(b"\n", b""), b"W" * 1000, b"the last, without an end"]
        if language == "shell":
            lines = [line.replace(b"\0", b"") for line in lines]
        sent(stdin=b"\n".join(lines))
        messages = [next_message(client) for _ in lines]
        assert [message.payload for message in messages] == lines
        # One packet for each, from one program that has counted them.
        assert len({message.src for message in messages}) == 1
        assert [message.seq - messages[0].seq for message in messages] == list(range(len(lines)))
        assert messages[0].src.split("/")[1] == {
            "perl": "publish.pl",
            "go": "bus",
            "shell": "socat",
            "python": Path(sys.executable).name,
        }.get(language, "publish")


@every_language
def test_a_publisher_says_what_was_refused(daemon: Daemon, examples: Examples, language: str) -> None:
    for chan, lines in (("no good", b"y\nz"), ("demo/x", b"x" * 2000)):
        done = examples.publish(language, daemon.bus, chan, stdin=lines)
        assert (done.returncode, done.stdout) == (1, b"")
        reason = b"bad_channel" if b"y" in lines else b"too_long"
        assert done.stderr.count(b"refused: %b %b" % (reason, chan.encode())) == len(lines.split(b"\n"))


@every_thorough_one
def test_a_publisher_sends_the_largest_packets(daemon: Daemon, examples: Examples, language: str) -> None:
    with daemon.connect("demo/") as client:
        largest = b"x" * (MAX_PACKET - len("MSG demo/x") - 1)
        done = examples.publish(language, daemon.bus, "demo/x", stdin=largest)
        assert (done.returncode, b"refused: too_long demo/x" in done.stderr) == (1, True)
        done = examples.publish(language, daemon.bus, "demo/x", stdin=b"before\n" + largest + b"x\nbehind")
        assert done.returncode == 1
        got = [client.receive(PATIENCE) for _ in range(2)]
        # The daemon may have more than this host's sockets carry; then it says so in place.
        assert isinstance(got[0], bccnd.Message)
        assert got[0].payload == largest
        assert isinstance(got[1], bccnd.Message)
        assert got[1].payload == b"before"


@every_language
def test_what_a_stopped_subscriber_misses_is_reported_by_it(daemon: Daemon, examples: Examples, language: str) -> None:
    with examples.subscribe(language, daemon, "flood/") as subscriber:
        # Of batches, a socket holds more.
        miss_some(daemon, subscriber, 20_000 if language in BATCHING else 2000)


@pytest.mark.parametrize("language", OWN_LOOPS)
def test_a_loop_of_its_own_that_receives_once_each_time_does_not_stall(
    daemon: Daemon, tmp_path: Path, language: str
) -> None:
    source = tmp_path / f"loop.{language}"
    source.write_text(OWN_LOOPS[language])
    command = {"perl": ["perl", f"-I{ROOT / 'examples/perl'}", str(source)], "python": [sys.executable, str(source)]}
    if language == "c":
        done = compiled(tmp_path / "loop", "cc", "-xc", str(source))
        assert done.returncode == 0, done.stderr
        command["c"] = [str(tmp_path / "loop")]
    with Subscriber(daemon, tmp_path, [*command[language], str(daemon.bus)]) as subscriber, daemon.connect() as client:
        for turn in range(3):
            client.publish_many(("own/x", f"{turn} {number}") for number in range(50))
            subscriber.wait_for(b"%d 49\n" % turn)
        assert subscriber.printed() == b"".join(b"%d %d\n" % (turn, n) for turn in range(3) for n in range(50))


def miss_some(daemon: Daemon, subscriber: Subscriber, count: int) -> None:
    subscriber.signal(signal.SIGSTOP)
    with daemon.connect() as client:
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


@every_language
def test_an_example_ends_with_a_word_where_it_cannot_work(tmp_path: Path, examples: Examples, language: str) -> None:
    nobody = str(tmp_path / "bus.sock")
    done = examples.publish(language, nobody, "demo/x", "y")
    assert done.returncode == 1
    assert nobody.encode() in done.stderr
    assert b"no such file or directory" in done.stderr.lower()
    done = examples.publish(language, nobody)
    assert done.returncode == 2
    assert b"usage:" in done.stderr
    if language in THOROUGH:
        for arguments, status in (([nobody, "demo/"], 1), ([nobody], 2)):
            done = subprocess.run(
                [*examples.program(language, 1), *arguments], capture_output=True, timeout=PATIENCE, check=False
            )
            assert done.returncode == status
            assert done.stderr


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("c/bccn.h", '#define BCCN_VERSION "{}"'),
        ("go/bccn.go", 'const Version = "{}"'),
        ("perl/Bccn.pm", "our $VERSION = '{}';"),
        ("../packaging/bccn.pc", "Version: {}\n"),
    ],
)
def test_what_programs_include_has_the_version_of_the_package(path: str, line: str) -> None:
    text = (ROOT / "examples" / path).read_text()
    # Between two releases they have the number of the next one.
    release = VERSION.partition(".dev")[0]
    assert line.format(release) in text
    if path.endswith(".h"):
        major, minor, patch = map(int, release.split("."))
        assert f"#define BCCN_VERSION_NUMBER {major * 10_000 + minor * 100 + patch}\n" in text


# -- the header for C


@pytest.mark.slow
@pytest.mark.parametrize("standard", ["c99", "c11", "gnu17", "c++11", "c++17"])
def test_the_header_stands_alone_and_gives_no_warning(tmp_path: Path, standard: str) -> None:
    compiler = "c++" if "+" in standard else "cc"
    if compiler == "c++" and shutil.which("c++") is None:
        pytest.skip("there is no c++")
    sample = "\n".join(re.findall(r"^ \*\t(.*)$", (HEADER / "bccn.h").read_text(), re.MULTILINE))
    assert "bccn_receive" in sample
    for name, text in (("alone", ""), ("later", "#include <unistd.h>\n")):
        source = tmp_path / f"{name}.{'cc' if compiler == 'c++' else 'c'}"
        source.write_text(f'{text}#include "bccn.h"\nint main(void)\n{{\n{sample}\nreturn 0;\n}}\n')
        options = ["-D_POSIX_C_SOURCE=200809L"] if text and standard.startswith("c") else []
        done = compiled(tmp_path / name, compiler, f"-std={standard}", "-O2", *options, str(source))
        assert (done.returncode, done.stderr) == (0, b"")
    for source in (HEADER / "subscribe.c", HEADER / "publish.c"):
        if compiler == "cc":
            done = compiled(tmp_path / "example", "cc", f"-std={standard}", "-O2", str(source))
            assert (done.returncode, done.stderr) == (0, b"")


class Checked(Closing):
    """The program header_check, under the sanitizers, connected to a daemon that the test plays."""

    def __init__(self, program: Path, *steps: str, size: int = MAX_PACKET + 4096, at: str = "") -> None:
        usual = program.with_suffix(".sock")
        self._out = program.with_suffix(".out")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.settimeout(PATIENCE)
            usual.unlink(missing_ok=True)
            listener.bind("\0" + at[1:] if at.startswith("@") else at or str(usual))
            listener.listen()
            with self._out.open("wb") as out:
                self.process = subprocess.Popen(
                    [str(program), at, str(size), *steps],
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=subprocess.PIPE,
                    env={**SANITIZED, "BCCN_SOCKET": str(usual)},
                )
            try:
                self.sock, _ = listener.accept()
            except BaseException:
                self._kill()
                raise
        self.sock.settimeout(PATIENCE)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)

    def receive(self) -> bytes:
        return self.sock.recv(1 << 20)

    def send(self, *packets: bytes) -> None:
        for packet in packets:
            self.sock.send(packet)

    def go_on(self) -> None:
        """End a step called wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def printed(self) -> list[str]:
        return self._out.read_text().splitlines()

    def end(self, last: str = "receive EPIPE") -> list[str]:
        """Hang up; what the program has printed between its connection and that."""
        self.sock.close()
        _, err = self.process.communicate(timeout=PATIENCE)
        assert (self.process.returncode, err) == (0, b"")
        lines = self.printed()
        assert (lines[0], lines[-1]) == ("connect 0", last)
        return lines[1:-1]

    def _kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        self.sock.close()
        if self.process.poll() is None:
            self._kill()


def shown(kind: str, key: bytes = b"", payload: bytes = b"", reason: bytes = b"", lost: int = 0, meta: str = "") -> str:
    """An event as header_check prints it."""
    return f"{kind} key={key.hex()} payload={payload.hex()} reason={reason.hex()} lost={lost}{meta}"


def with_meta(src: bytes, seq: int, received_ns: int, peer: bytes) -> str:
    return f" src={src.hex()} peer={peer.hex()} seq={seq} ns={received_ns}"


BAD = "receive EBADMSG"
MOST = 2**64 - 1
BAD_PACKETS = [
    *(b"MSG a", b"MSG ", b"MSG", b"M", b"\0", b"msg a\0b", b"SUB a", b"CMSG", b"CMSGx"),
    *(b"MSGS ", b"MSGS 1", b"MSGS \0", b"MSGS 0\0"),
    # counts that are none, or not that of the messages behind them
    *(b"MSGS " + count + b"\0\x06\0\0\0MSG a\0" for count in (b"-1", b"x", b"%d" % MOST, b"%d" % (MOST + 2), b"2")),
    b"MSGS 2\0\x06\0\0\0MSG a\0\x06\0\0\0MSG a",
    # behind a count of one: lengths that do not fit, and what is no message
    *(
        b"MSGS 1\0" + rest
        for rest in (
            *(b"", b"\x06\0\0", b"\x06\0\0\0", b"\x06\0\0\0MSG a", b"\0\0\0\0", b"\x07\0\0\0MSG a\0"),
            *(b"\xff\xff\xff\xffMSG a\0", b"\xfc\xff\xff\xffMSG a\0", b"\x06\0\0\x80MSG a\0", b"\x05\0\0\0MSG a\0"),
            *(b"\x06\0\0\0MSG a\0\0", b"\x06\0\0\0MSG ab", b"\x0a\0\0\0MSG ab", b"\x03\0\0\0MSG"),
            *(b"\x07\0\0\0CMSG a\0", b"\x06\0\0\0MSG a\0\x06\0\0\0MSG a\0"),
        )
    ),
    *(
        b"CMSG !/bccn/gap" + rest
        for rest in (b"", b"\0", b"\0-1", b"\x001\0", b"\0" + b"9" * 1000, b"\0%d" % (MOST + 1))
    ),
]
PACKETS = [
    *(b"MSG a/b\0hello", b"MSG a\0", b"MSG \0x", b"MSG a\0\0b\0"),
    *(b"MSGS 1\0\x08\0\0\0MSG a\0bc", b"MSGS 01\0\x06\0\0\0MSG a\0"),
    *(b"MSGS 1\0\x05\0\0\0MSG \0", b"MSGS 1\0\x08\0\0\0MSG a\0\0\0"),
    *(b"CMSG ", b"CMSG !/bccn/whoami", b"CMSG !/bccn/whoami\0me"),
    *(b"CMSG !/bccn/gap\x0017", b"CMSG !/bccn/gap\0%d" % MOST),
    *(b"CMSG !/bccn/error\0too_long a/b", b"CMSG !/bccn/error\0bad a b\0c", b"CMSG !/bccn/error\0empty "),
    *(b"CMSG !/bccn/error\0empty", b"CMSG !/bccn/error\0", b"CMSG !/bccn/error"),
]
HEAD = b"r/s/1:7:99:[::1]:5400|"
META = with_meta(b"r/s/1", 7, 99, b"[::1]:5400")
PACKETS_WITH_META = [
    *(b"MSG a\0" + HEAD + b"hello|:", b"MSGS 1\0\x1c\0\0\0MSG a\0" + HEAD, b"MSG a\0:%d:0:|" % MOST),
    # The last ones are no legal channels, so that this is a payload that only looks like it.
    *(
        b"MSG %b\0%b" % (key, HEAD)
        for key in (
            *(b"!", b"!r/*", b"a" * 1024),
            *(b"!/x", b"!?", b"", b"a:b", b"a|b", b"a b", b"\xff", b"\x7f", b"a" * 1025),
        )
    ),
    # No meta after all.
    *(
        b"MSG a\0" + payload
        for payload in (
            *(b"", b"|", b":::|", b"a:1:2|b:c", b"a:1:2:c", b"a:1:2", b"a::2:c|", b"a:1::c|", b"a:-1:2:c|"),
            *(b"a:1:2x:c|", b"a:%d:2:c|" % (MOST + 1), b"a\0:1:2:c|", b"a:1:2:c\0|", b"a:" + b"1" * 5000 + b":2:c|"),
        )
    ),
]


def number(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() and len(digits) < 100 and int(digits) <= MOST else None


def in_python(packet: bytes, meta: bool) -> list[str]:
    """What the header should make of a packet."""
    if not packet.startswith(b"MSGS "):
        return [one_in_python(packet, meta)]
    try:
        return [one_in_python(one, meta) for one in frames.read_batch(packet)]
    except BadFrame:
        return [BAD]


def one_in_python(packet: bytes, meta: bool) -> str:
    """The same for a packet that is no batch; a text of C ends at its first NUL."""
    verb, blank, rest = packet.partition(b" ")
    key, nul, payload = rest.partition(b"\0")
    if not blank or verb not in (b"MSG", b"CMSG") or (verb == b"MSG" and not nul):
        return BAD
    if verb == b"CMSG" and key == b"!/bccn/gap":
        lost = number(payload)
        return BAD if lost is None else shown("gap", key, payload, lost=lost)
    if verb == b"CMSG" and key == b"!/bccn/error":
        reason, _, about = payload.partition(b" ")
        return shown("refusal", about.split(b"\0")[0], about, reason.split(b"\0")[0])
    if verb == b"CMSG":
        return shown("answer", key, payload)
    head, bar, body = payload.partition(b"|")
    fields = head.split(b":", 3)
    legal = re.fullmatch(rb"(?!![/?])[!-9;-{}~]{1,1024}", key)
    if meta and legal and bar and len(fields) == 4 and b"\0" not in head:
        src, seq, received_ns, peer = fields[0], number(fields[1]), number(fields[2]), fields[3]
        if seq is not None and received_ns is not None:
            return shown("message", key, body, meta=with_meta(src, seq, received_ns, peer))
    return shown("message", key, payload)


def noisy(dice: random.Random, packet: bytes) -> bytes:
    changed = bytearray(packet)
    for _ in range(dice.randrange(4)):
        where = dice.randrange(len(changed) + 1)
        if dice.random() < 0.5:
            changed[where : where + dice.randrange(3)] = b""
        else:
            changed[where:where] = dice.choice([b"\0", b":", b"|", b" ", b"9", b"\xff", b"MSG ", b"CMSG "])
    return bytes(changed) or b"x"


@pytest.mark.parametrize("meta", [False, True])
def test_the_header_takes_every_packet_and_noise_apart(check: Path, meta: bool) -> None:
    dice = random.Random(1)
    seeds = [*PACKETS, *BAD_PACKETS, *PACKETS_WITH_META]
    mixed = frames.batch([b"MSG a\0" + HEAD + b"1", b"MSG \0", b"MSG a b\0x", b"MSG !\0" + HEAD])
    noise = [noisy(dice, dice.choice(seeds + [mixed] * 30)) for _ in range(5000)]
    wanted = [line for packet in seeds + noise for line in in_python(packet, meta)]
    assert [line for packet in BAD_PACKETS for line in in_python(packet, meta)] == [BAD] * len(BAD_PACKETS)
    with Checked(check, *(["ctl", "!/bccn/meta/on", "-"] if meta else [])) as checked:
        if meta:
            assert checked.receive() == b"CMSG !/bccn/meta/on"
        for packet in seeds:
            checked.send(packet, b"")  # the latter looks like the end, and is not
        checked.send(*noise)
        assert checked.end() == ["ctl 0"] * meta + wanted


def numbered(first: int, behind: int) -> tuple[bytes, list[str]]:
    """A batch of messages with meta that are numbered from here to there, and how each is shown."""
    some = range(first, behind)
    packet = frames.batch([b"MSG a\0" + HEAD + b"%d" % number for number in some])
    return packet, [shown("message", b"a", b"%d" % number, meta=META) for number in some]


def test_a_batch_is_handed_out_one_by_one_and_in_its_place(check: Path) -> None:
    first, first_shown = numbered(0, 3)
    second, second_shown = numbered(5, 900)
    steps = "ctl !/bccn/meta/on - ctl !/bccn/batch/on - next sync 20000 next next next next ctl !/bccn/batch/off - next"
    with Checked(check, *steps.split()) as checked:
        assert checked.receive() == b"CMSG !/bccn/meta/on"
        assert checked.receive() == b"CMSG !/bccn/batch/on"
        checked.send(first)
        echo = checked.receive()
        checked.send(b"CMSG !/bccn/gap\x001", echo, b"MSG a\0" + HEAD + b"4", second, b"CMSG !/x\0y")
        assert checked.receive() == b"CMSG !/bccn/batch/off"
        assert checked.end() == [
            *("ctl 0", "ctl 0", first_shown[0], "pending 2", "next 0"),
            *("before: " + line for line in first_shown[1:]),
            *("before: " + shown("gap", b"!/bccn/gap", b"1", lost=1), "sync 0"),
            *(shown("message", b"a", b"4", meta=META), "pending 0", "next 0"),
            *(second_shown[0], "pending 894", "next 0", second_shown[1], "pending 893", "next 0"),
            *(second_shown[2], "pending 892", "next 0", "ctl 0", second_shown[3], "pending 891", "next 0"),
            *second_shown[4:],
            shown("answer", b"!/x", b"y"),
        ]


@pytest.mark.parametrize("loop", ["poll", "drain"])
def test_a_poll_loop_forgets_nothing_of_a_batch(check: Path, loop: str) -> None:
    packets = [numbered(first, first + 5) for first in range(0, 100, 5)]
    with Checked(check, "ctl", "!/bccn/meta/on", "-", loop, "100", "sub", "done") as checked:
        assert checked.receive() == b"CMSG !/bccn/meta/on"
        for packet, _ in packets[:10]:
            checked.send(packet)
        wait(lambda: len(checked.printed()) == 2 + 2 * 50, "half of them")  # all that there is, before it waits again
        for packet, _ in packets[10:]:
            checked.send(packet)
        assert checked.receive() == b"SUB done"
        lines = checked.end()
        assert (lines[0], lines[-2], lines[-1]) == ("ctl 0", f"{loop} 0", "sub 0")
        assert lines[1:-2:2] == [line for _, some in packets for line in some]
        assert lines[2:-2:2] == [f"pending {4 - number % 5}" for number in range(100)]


def test_the_largest_batch_fits_where_the_header_says_so(check: Path) -> None:
    largest = frames.batch([b"MSG a\0" + b"x" * (65_536 - 7 - 4 - 6)])
    assert len(largest) == frames.MAX_BATCH
    smallest = frames.batch([b"MSG \0"] * 7000)
    for size in (65_537, 65_536):
        with Checked(check, size=size) as checked:
            checked.send(largest, smallest)
            got = checked.end()
            assert got[-7000:] == [shown("message")] * 7000
            assert got[0] == (shown("message", b"a", b"x" * 65_519) if size == 65_537 else "receive EMSGSIZE")
            assert len(got) == 7001


def test_a_packet_larger_than_the_buffer_is_reported_and_dropped(check: Path) -> None:
    with Checked(check, size=20) as checked:
        checked.send(b"MSG a\0" + b"1" * 13, b"MSG a\0" + b"2" * 14, b"MSG a\0" + b"3" * 100_000, b"MSG a\x004")
        first, last = shown("message", b"a", b"1" * 13), shown("message", b"a", b"4")
        assert checked.end() == [first, "receive EMSGSIZE", "receive EMSGSIZE", last]
    for size in (1, 2, 5, 7):
        with Checked(check, size=size) as checked:
            checked.send(b"MSG a\0b", b"", b"M")
            assert checked.end() == ["receive EMSGSIZE", "receive EMSGSIZE" if size == 1 else BAD]


def test_what_the_header_sends(check: Path) -> None:
    steps = "sub demo/ unsub demo/ pub a/b 00ff0a00 pub a - ctl !/x - ctl !/x 0041"
    with Checked(check, *steps.split()) as checked:
        for packet in (b"SUB demo/", b"UNSUB demo/", b"MSG a/b\0\0\xff\n\0", b"MSG a\0", b"CMSG !/x", b"CMSG !/x\0\0A"):
            assert checked.receive() == packet
        assert checked.end() == ["sub 0", "unsub 0", "pub 0", "pub 0", "ctl 0", "ctl 0"]


def test_answers_are_waited_for_and_what_comes_before_them_is_not_lost(check: Path) -> None:
    steps = "sync 20000 ask !/bccn/whoami -1 ask !/no 20000 ask !/never 50 sync 0"
    with Checked(check, *steps.split()) as checked:
        echo = checked.receive()
        assert echo.startswith(b"CMSG !/bccn/sync\0")
        checked.send(b"CMSG !/bccn/sync\0another", b"MSG a\0b", b"CMSG !/bccn/error\0too_long a", echo)
        assert checked.receive() == b"CMSG !/bccn/whoami"
        checked.send(b"CMSG !/bccn/gap\x003", b"CMSG !/bccn/whoami\0me")
        assert checked.receive() == b"CMSG !/no"
        checked.send(b"CMSG !/bccn/error\0unknown_control !/no")
        assert checked.receive() == b"CMSG !/never"
        later = checked.receive()
        assert later.startswith(b"CMSG !/bccn/sync\0")
        assert later != echo
        wait(lambda: "sync ETIMEDOUT" in checked.printed(), "the last step")
        assert checked.end() == [
            "before: " + shown("answer", b"!/bccn/sync", b"another"),
            "before: " + shown("message", b"a", b"b"),
            "before: " + shown("refusal", b"a", b"a", b"too_long"),
            "sync 0",
            "before: " + shown("gap", b"!/bccn/gap", b"3", lost=3),
            "asked: " + shown("answer", b"!/bccn/whoami", b"me"),
            "ask 0",
            "asked: " + shown("refusal", b"!/no", b"!/no", b"unknown_control"),
            "ask ENOTSUP",
            "ask ETIMEDOUT",
            "sync ETIMEDOUT",
        ]


@pytest.mark.parametrize("steps", ["sync 200", "ask !/never 200", "sync 0"])
def test_a_wait_for_an_answer_ends_in_time_while_messages_come_without_end(check: Path, steps: str) -> None:
    name = steps.split()[0]
    with Checked(check, *steps.split(), "wait") as checked:
        checked.receive()
        deadline = time.monotonic() + PATIENCE
        while f"{name} ETIMEDOUT" not in checked.printed():
            with suppress(BlockingIOError):  # it may read no more
                checked.sock.setblocking(False)
                checked.send(*[b"MSG a\0x"] * 20)
            checked.sock.settimeout(PATIENCE)
            assert time.monotonic() < deadline
        checked.go_on()
        lines = [line for line in checked.end() if not line.endswith(shown("message", b"a", b"x"))]
        assert lines == [f"{name} ETIMEDOUT", "wait 0"]


def test_a_signal_ends_a_wait_and_nothing_else(check: Path) -> None:
    with Checked(check, "recv", "0", "signal", "recv", "0") as checked:

        def interrupted() -> bool:
            checked.process.send_signal(signal.SIGUSR1)  # heeded only while it waits
            return "signal EINTR" in checked.printed()

        wait(lambda: "recv 0" in checked.printed(), "the first step")
        wait(interrupted, "the signal")
        checked.send(b"MSG a\0b")
        assert sorted(checked.end()) == sorted(["recv 0", "signal EINTR", "recv 0", shown("message", b"a", b"b")])


def test_an_end_is_told_behind_what_came_before_it(check: Path) -> None:
    with Checked(check, "sub", "never read", "wait", "pub", "a", "41", "sub", "b", "recv", "0") as checked:
        checked.send(b"MSG a\x001", b"", frames.batch([b"MSG a\x002", b"MSG a\x003"]), b"")
        assert checked.sock.recv(100, socket.MSG_PEEK) == b"SUB never read"
        checked.sock.close()
        checked.go_on()
        got = [shown("message", b"a", one) for one in (b"1", b"2", b"3")]
        lines = checked.end()
        assert lines == ["sub 0", "wait 0", "pub EPIPE", "sub EPIPE", *got, "receive EPIPE", "recv EPIPE"]


def test_a_daemon_that_says_no_more_has_ended(check: Path) -> None:
    with Checked(check) as checked:
        checked.send(b"")
        checked.sock.shutdown(socket.SHUT_WR)
        wait(lambda: checked.process.poll() is not None, "its end")
        assert checked.end() == []


def test_where_the_header_looks_for_the_daemon(check: Path, tmp_path: Path) -> None:
    for at in ("", f"@bccn/{os.getpid()}", f"@{os.getpid()}".ljust(108, "x"), str(tmp_path / "other")):
        with Checked(check, at=at) as checked:
            assert checked.end() == []
    for path, size, output in (
        ("@" + "x" * 108, 100, "ENAMETOOLONG"),
        ("/" + "x" * 107, 100, "ENAMETOOLONG"),
        ("/" + "x" * 106, 100, "No such file or directory"),
        ("/x", 0, "Invalid argument"),
    ):
        done = subprocess.run([str(check), path, str(size)], capture_output=True, timeout=PATIENCE, check=True)
        assert done.stdout.decode() == f"connect {output}\n"
