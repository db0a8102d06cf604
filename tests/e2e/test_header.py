"""The header for C under sanitizers, with a daemon that the test plays: every packet, and whole conversations."""

from __future__ import annotations

import errno
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping
from itertools import repeat
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from bccnd.core.wire import frames
from bccnd.errors import BadFrame
from tests.e2e.harness import PATIENCE
from tests.e2e.subscribers import HEADER, compiled
from tests.support import ROOT, cannot_here

# Building with sanitizers takes seconds.
pytestmark = pytest.mark.slow

MAX_PACKET: Final = 409_600
#: nothing leaks where nothing is allocated, and looking for it is forbidden in some containers
SANITIZED: Final = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
SANITIZERS: Final = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

SYNC: Final = b"CMSG !/bccn/sync"
#: stands for the packet that is answered
ECHO: Final = b"(echo)"
UNREAD: Final = b"SUB unread"
#: what the connection ends with
ENDS: Final = (b"SUB done", UNREAD)
#: what the daemon answers to a packet
Answers = Mapping[bytes, Iterable[bytes]]
NO_ANSWERS: Final[Answers] = {}


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program header_check, built with sanitizers."""
    program = tmp_path_factory.mktemp("check") / "header_check"
    nothing = program.with_suffix(".c")
    nothing.write_text("int main(void) { return 0; }\n")
    if compiled(program, "cc", *SANITIZERS, str(nothing)).returncode:
        cannot_here("this cc has no sanitizers")
    done = compiled(program, "cc", "-std=c99", *SANITIZERS, str(ROOT / "tests/peers/header_check.c"))
    assert (done.returncode, done.stderr) == (0, b"")
    return program


@pytest.mark.parametrize("standard", ["c99", "c11", "gnu17", "c++11", "c++17"])
def test_header_stands_alone_without_warnings(tmp_path: Path, standard: str) -> None:
    compiler = "c++" if "+" in standard else "cc"
    if compiler == "c++" and shutil.which("c++") is None:
        pytest.skip("there is no c++")
    sample = "\n".join(re.findall(r"^ \*\t(.*)$", (HEADER / "bccn.h").read_text(), re.MULTILINE))
    assert "bccn_receive" in sample
    sources = [] if compiler == "c++" else [HEADER / "subscribe.c", HEADER / "publish.c"]
    for name, text in (("alone", ""), ("later", "#include <unistd.h>\n")):
        sources.append(tmp_path / f"{name}.{'cc' if compiler == 'c++' else 'c'}")
        sources[-1].write_text(f'{text}#include "bccn.h"\nint main(void)\n{{\n{sample}\nreturn 0;\n}}\n')
    for source in sources:
        options = ["-D_POSIX_C_SOURCE=200809L"] if source.stem == "later" and standard.startswith("c") else []
        done = compiled(tmp_path / "program", compiler, f"-std={standard}", "-O2", *options, str(source))
        assert (done.returncode, done.stderr) == (0, b"")


def converse(
    program: Path,
    steps: str = "",
    answers: Answers = NO_ANSWERS,
    *,
    size: int = MAX_PACKET,
    at: str = "",
    signals: bool = False,
) -> list[str]:
    """Play a daemon for header_check until it sends `SUB done`; what it has printed.

    An answer is cut short when the program sends again. What the program subscribes to as ``unread`` is not read:
    that connection ends with it in the socket, and behind its answer. ``signals`` come while nothing else does.
    """
    usual, out = program.with_suffix(".sock"), program.with_suffix(".out")
    words = [*steps.split(), *(() if "unread" in steps else ("sub", "done"))]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, out.open("wb") as output:
        listener.settimeout(PATIENCE)
        usual.unlink(missing_ok=True)
        listener.bind("\0" + at[1:] if at.startswith("@") else at or str(usual))
        listener.listen()
        process = subprocess.Popen(
            [str(program), at, str(size), *words],
            stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE,
            env={**SANITIZED, "BCCN_SOCKET": str(usual)},
        )  # fmt: skip
        packet = b""
        try:
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(PATIENCE)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                while packet not in ENDS:
                    while signals and not readable(sock, 0.01):
                        process.send_signal(signal.SIGUSR1)
                    packet = sock.recv(1 << 20, socket.MSG_PEEK)
                    if packet != UNREAD:
                        sock.recv(1 << 20)
                    for answer in answers.get(SYNC if packet.startswith(SYNC) else packet, ()):
                        if packet not in ENDS and readable(sock):
                            break
                        sock.send(packet if answer == ECHO else answer)
            _, err = process.communicate(b"\n", timeout=PATIENCE)
        finally:
            process.kill()
            process.wait(PATIENCE)
    lines = out.read_text().splitlines()
    assert (process.returncode, err, lines[0]) == (0, b"", "connect 0")
    return [line for line in lines[1:] if line not in ("sub 0", "receive EPIPE")]


def readable(sock: socket.socket, seconds: float = 0.0) -> bool:
    return bool(select.select([sock], [], [], seconds)[0])


# -- every packet


def shown(kind: str, key: bytes = b"", payload: bytes = b"", reason: bytes = b"", lost: int = 0, meta: str = "") -> str:
    """An event as header_check prints it."""
    return f"{kind} key={key.hex()} payload={payload.hex()} reason={reason.hex()} lost={lost}{meta}"


def with_meta(src: bytes, seq: int, received_ns: int, peer: bytes) -> str:
    return f" src={src.hex()} peer={peer.hex()} seq={seq} ns={received_ns}"


BAD: Final = "receive EBADMSG"
MOST: Final = 2**64 - 1
BAD_PACKETS: Final = [
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
PACKETS: Final = [
    *(b"MSG a/b\0hello", b"MSG a\0", b"MSG \0x", b"MSG a\0\0b\0"),
    *(b"MSGS 1\0\x08\0\0\0MSG a\0bc", b"MSGS 01\0\x06\0\0\0MSG a\0"),
    *(b"MSGS 1\0\x05\0\0\0MSG \0", b"MSGS 1\0\x08\0\0\0MSG a\0\0\0"),
    *(b"CMSG ", b"CMSG !/bccn/whoami", b"CMSG !/bccn/whoami\0me"),
    *(b"CMSG !/bccn/gap\x0017", b"CMSG !/bccn/gap\0%d" % MOST),
    *(b"CMSG !/bccn/error\0too_long a/b", b"CMSG !/bccn/error\0bad a b\0c", b"CMSG !/bccn/error\0empty "),
    *(b"CMSG !/bccn/error\0empty", b"CMSG !/bccn/error\0", b"CMSG !/bccn/error"),
]
HEAD: Final = b"r/s/1:7:99:[::1]:5400|"
META: Final = with_meta(b"r/s/1", 7, 99, b"[::1]:5400")
PACKETS_WITH_META: Final = [
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
def test_every_packet_and_noise_is_read_as_in_python(check: Path, meta: bool) -> None:
    dice = random.Random(1)
    seeds = [*PACKETS, *BAD_PACKETS, *PACKETS_WITH_META]
    mixed = frames.batch([b"MSG a\0" + HEAD + b"1", b"MSG \0", b"MSG a b\0x", b"MSG !\0" + HEAD])
    noise = [noisy(dice, dice.choice(seeds + [mixed] * 30)) for _ in range(5000)]
    wanted = [line for packet in seeds + noise for line in in_python(packet, meta)]
    assert [line for packet in BAD_PACKETS for line in in_python(packet, meta)] == [BAD] * len(BAD_PACKETS)
    packets = [one for packet in seeds for one in (packet, b"")]  # the latter looks like the end, and is not
    lines = converse(check, "ctl !/bccn/meta/on" if meta else "", {b"SUB done": packets + noise})
    assert lines == ["ctl 0"] * meta + wanted


# -- conversations


def numbered(first: int, behind: int) -> tuple[bytes, list[str]]:
    """A batch of messages with meta that are numbered from here to there, and how each is shown."""
    some = range(first, behind)
    packet = frames.batch([b"MSG a\0" + HEAD + b"%d" % number for number in some])
    return packet, [shown("message", b"a", b"%d" % number, meta=META) for number in some]


WITH_META: Final = b"CMSG !/bccn/meta/on"
BATCH_1, SHOWN_1 = numbered(0, 3)
BATCH_2, SHOWN_2 = numbered(5, 900)
LARGEST: Final = frames.batch([b"MSG a\0" + b"x" * (65_536 - 7 - 4 - 6)])
X: Final = shown("message", b"a", b"x")


class Talk(NamedTuple):
    """Steps of the program, answers of the daemon, and what is printed."""

    steps: str
    answers: Answers
    printed: list[str]
    size: int = MAX_PACKET


CONVERSATIONS: Final = {
    "packets are sent as documented": Talk(
        "unsub demo/ next pub a/b text next",
        {b"UNSUB demo/": [b"MSG a\0x"], b"MSG a/b\0text": [b"MSG a\0x"]},
        ["unsub 0", X, "pending 0", "next 0", "pub 0", X, "pending 0", "next 0"],
    ),
    "what comes before an answer is kept": Talk(
        "sync 20000 ask !/bccn/whoami -1 ask !/no 20000 ask !/never 50",
        {
            SYNC: [SYNC + b"\0another", b"MSG a\0b", b"CMSG !/bccn/error\0too_long a", ECHO],
            b"CMSG !/bccn/whoami": [b"CMSG !/bccn/gap\x003", b"CMSG !/bccn/whoami\0me"],
            b"CMSG !/no": [b"CMSG !/bccn/error\0unknown_control !/no"],
        },
        [
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
        ],
    ),
    "a batch is handed out one by one in its place": Talk(
        "ctl !/bccn/meta/on next sync 20000 next next next",
        {WITH_META: [BATCH_1], SYNC: [b"CMSG !/bccn/gap\x001", ECHO, b"MSG a\0" + HEAD + b"4", BATCH_2]},
        [
            *("ctl 0", SHOWN_1[0], "pending 2", "next 0"),
            *("before: " + line for line in SHOWN_1[1:]),
            *("before: " + shown("gap", b"!/bccn/gap", b"1", lost=1), "sync 0"),
            *(shown("message", b"a", b"4", meta=META), "pending 0", "next 0"),
            *(SHOWN_2[0], "pending 894", "next 0", SHOWN_2[1], "pending 893", "next 0"),
            *SHOWN_2[2:],
        ],
    ),
    "an end is told behind what came before it": Talk(
        "sub unread wait pub a 41 recv 0",
        {UNREAD: [b"MSG a\x001", b"", frames.batch([b"MSG a\x002", b"MSG a\x003"]), b""]},
        ["wait 0", "pub EPIPE", *(shown("message", b"a", one) for one in (b"1", b"2", b"3")), "recv EPIPE"],
    ),
    "the largest batch fits into the buffer": Talk(
        "", {b"SUB done": [LARGEST]}, [shown("message", b"a", b"x" * 65_519)], size=65_537
    ),
    "what does not fit is reported and dropped": Talk(
        "",
        {b"SUB done": [b"MSG a\0" + b"1" * 13, b"MSG a\0" + b"2" * 14, LARGEST, b"MSG a\x004"]},
        [shown("message", b"a", b"1" * 13), *["receive EMSGSIZE"] * 2, shown("message", b"a", b"4")],
        size=20,
    ),
    **{
        f"{steps} ends in time while messages come without end": Talk(
            steps, {SYNC: repeat(b"MSG a\0x"), b"CMSG !/never": repeat(b"MSG a\0x")}, [f"{steps.split()[0]} ETIMEDOUT"]
        )
        for steps in ("sync 200", "ask !/never 200", "sync 0")
    },
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_goes_as_written(check: Path, name: str) -> None:
    talk = CONVERSATIONS[name]
    lines = converse(check, talk.steps, talk.answers, size=talk.size)
    endless = any(isinstance(answer, repeat) for answer in talk.answers.values())
    assert [line for line in lines if not (endless and line.endswith(X))] == talk.printed


def test_a_signal_ends_a_wait_and_nothing_else(check: Path) -> None:
    lines = converse(check, "signal", {b"SUB done": [b"MSG a\0b"]}, signals=True)
    assert lines == ["signal EINTR", shown("message", b"a", b"b")]


def test_the_daemon_is_looked_for_at_its_address(check: Path, tmp_path: Path) -> None:
    for at in ("", f"@bccn/{os.getpid()}", f"@{os.getpid()}".ljust(108, "x"), str(tmp_path / "other")):
        assert converse(check, at=at) == []
    for path, size, output in (
        ("@" + "x" * 108, 100, "ENAMETOOLONG"),
        ("/" + "x" * 107, 100, "ENAMETOOLONG"),
        ("/" + "x" * 106, 100, os.strerror(errno.ENOENT)),
        ("/x", 0, os.strerror(errno.EINVAL)),
    ):
        done = subprocess.run([str(check), path, str(size)], capture_output=True, timeout=PATIENCE, check=True)
        assert done.stdout.decode() == f"connect {output}\n"
