"""The daemon and programs that share no line with it: small peers in C, Perl and shell, each written from the protocol.

docs/compatibility.md says what works with whom; the last tests hold that page and this file together.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import pytest

import bccnd
from tests.e2e.harness import BIN, KEY, PATIENCE, Daemon, Wire, datagram, payloads, wait
from tests.e2e.network import PORT, Net
from tests.e2e.starting import refused
from tests.support import BROADCAST, ROOT, cannot_here, listens

HERE = ROOT / "tests/peers"
PAGE = ROOT / "docs/compatibility.md"
LANGUAGES = ["c", "perl", "shell"]
#: every byte but the line end, which ends a payload on the way into a peer
BYTES = bytes(range(256)).replace(b"\n", b"")
SRC = "relay02/peer/7"


def run(*command: str | bytes | Path, stdin: bytes = b"") -> bytes:
    """Run a program that must succeed; returns what it printed."""
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr.decode(errors='replace')}"
    return done.stdout


def need(tool: str) -> str:
    path = shutil.which(tool)
    return path if path is not None else cannot_here(f"there is no {tool}")


class Peers:
    """The commands of the peers; one whose language is missing here skips the test that asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def c(self) -> list[str]:
        program = str(self._folder / "peer")
        run(need("cc"), "-Wall", "-Wextra", "-Werror", "-O1", "-o", program, str(HERE / "peer.c"))
        return [program]

    @cached_property
    def perl(self) -> list[str]:
        perl = need("perl")
        if subprocess.run([perl, "-MDigest::SHA", "-e", "1"], capture_output=True, check=False).returncode:
            cannot_here("this perl has no Digest::SHA")
        return [perl, str(HERE / "peer.pl")]

    @cached_property
    def shell(self) -> list[str]:
        need("socat")
        need("openssl")
        return [need("sh"), str(HERE / "peer.sh")]

    def tell(
        self,
        language: str,
        port: int,
        src: str,
        seq: int,
        chan: str,
        *messages: bytes,
        options: Sequence[str] = (),
        to: str = BROADCAST,
        on: Sequence[str] = (),
    ) -> None:
        """Let a peer send messages, from ``seq`` on; ``on`` runs it on another host."""
        command: list[str] = [*on, *getattr(self, language), "send", to, str(port), src]
        if language == "shell":
            for number, message in enumerate(messages, seq):
                run(*command, str(number), chan, message, *options)
        else:
            run(*command, str(seq), chan, *options, stdin=b"".join(message + b"\n" for message in messages))

    def listen(self, language: str, port: int, *options: str, on: Sequence[str] = ()) -> Listener:
        where = [str(port)] if language == "shell" else ["0.0.0.0", str(port)]
        return Listener(port, [*getattr(self, language), "listen", *where, *options], on)


def bound(port: int, on: Sequence[str] = ()) -> int:
    """How many sockets are bound to a UDP port, here or ``on`` another host."""
    return run(*on, "cat", "/proc/net/udp").count(b":%04X 00000000:0000 " % port)


class Listener:
    """A peer that listens when this has been made; what it prints as it comes."""

    def __init__(self, port: int, command: Sequence[str], on: Sequence[str] = ()) -> None:
        self._port = port
        self._text = b""
        # A group of its own, because a shell has children.
        self._process = subprocess.Popen(
            [*on, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            wait(lambda: listens(self._process.pid, port), f"{command} to listen")
        except BaseException:
            self.close()
            raise

    def until(self, end: bytes) -> bytes:
        """What it prints up to ``end``, and that."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        while end not in self._text:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            assert more, f"waited in vain for {end!r}, there is {self._text!r}"
            self._text += more
        head, _, self._text = self._text.partition(end)
        return head + end

    def lines(self, count: int) -> list[bytes]:
        """The next lines."""
        return [self.until(b"\n")[:-1] for _ in range(count)]

    def so_far(self) -> list[bytes]:
        """All lines of what has been sent until now; a last datagram, which every reader takes, shows the end."""
        with Wire(self._port) as wire:
            wire.send(datagram("mark", time.time_ns(), "mark", "the end"))
        return self.until(b" mark the end\n").split(b"\n")[:-2]

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Check(NamedTuple):
    """An algorithm, as the daemon and as a peer are told of it."""

    integrity: dict[str, Any]
    options: tuple[str, ...]


def check_of(algorithm: str, folder: Path) -> Check:
    """Make what an algorithm needs in ``folder``."""
    if algorithm == "hmac":
        file = folder / "hmac.key"
        file.write_bytes(KEY + b"\n")
        file.chmod(0o600)
        return Check({"algorithm": "hmac", "keys": [str(file)]}, ("--key", str(file)))
    if algorithm == "sig":
        private, public = openssl_keys(folder / "other")
        own, _ = openssl_keys(folder / "own")
        integrity = {"algorithm": "sig", "keys": [str(own)], "signers": {"relay02": [str(public)]}}
        return Check(integrity, ("--sign", str(private)))
    return Check({"algorithm": algorithm}, ("--crc32",) if algorithm == "crc32" else ())


def openssl_keys(private: Path) -> tuple[Path, Path]:
    """A private key and its public one, made by openssl."""
    public = private.with_suffix(".pub")
    run(need("openssl"), "genpkey", "-algorithm", "ed25519", "-out", private)
    private.chmod(0o600)
    run(need("openssl"), "pkey", "-in", private, "-pubout", "-out", public)
    public.chmod(0o644)
    return private, public


def padded(size: int, src: str, seq: int, chan: str) -> bytes:
    """A payload with which an unsigned datagram has ``size`` bytes."""
    payload = b"x" * (size - len(datagram(src, seq, chan, b"x" * 1000)) + 1000)
    assert len(datagram(src, seq, chan, payload)) == size
    return payload


def payloads_in(lines: Sequence[bytes]) -> list[bytes]:
    """The payloads in what a listening peer prints."""
    return [line.split(b" ", 3)[3] for line in lines]


def named_client(folder: Path, name: str, daemon: Daemon, frame: bytes) -> None:
    """Publish as a program of that name: socat under another one. It waits for the daemon to end the connection, so
    that the daemon surely finds it in the list of processes."""
    program = folder / name
    program.symlink_to(need("socat"))
    run(program, "-t", str(PATIENCE), "-", f"UNIX-CONNECT:{daemon.bus},type=5", stdin=frame)


def message_of(client: bccnd.Connection) -> bccnd.Message:
    message = client.receive(PATIENCE)
    assert isinstance(message, bccnd.Message)
    return message


@pytest.fixture(scope="session")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Peers:
    return Peers(tmp_path_factory.mktemp("peers"))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon without any check."""
    with Daemon(tmp_path / "a") as daemon:
        yield daemon


# -- any BCCN1 sender


@pytest.mark.parametrize(
    ("language", "algorithm"),
    [("c", "none"), ("c", "crc32"), ("perl", "none"), ("perl", "hmac"), ("shell", "none"), ("shell", "hmac")],
)
def test_a_client_receives_what_a_peer_sends(tmp_path: Path, peers: Peers, language: str, algorithm: str) -> None:
    check = check_of(algorithm, tmp_path)
    # No argument of a program can hold a NUL.
    sent = [BYTES.strip(b"\0") if language == "shell" else BYTES, b"", b"a|b:c]"]
    with Daemon(tmp_path / "a", {"integrity": check.integrity}) as daemon, daemon.connect("demo/") as client:
        peers.tell(language, daemon.port, SRC, 1, "demo/x", *sent, options=check.options)
        for seq, payload in enumerate(sent, start=1):
            assert message_of(client)[:5] == (SRC, seq, "demo/x", payload, "plain")
        assert daemon.verdicts() == {"accepted": len(sent)}


@pytest.mark.parametrize(("language", "algorithm"), [("c", "none"), ("c", "crc32"), ("perl", "none"), ("perl", "hmac")])
def test_a_peer_receives_and_verifies_what_a_client_publishes(
    tmp_path: Path, peers: Peers, language: str, algorithm: str
) -> None:
    check = check_of(algorithm, tmp_path)
    sent = [bytes(range(256)), b"", b"a|b:c]", b"last"]
    with (
        Daemon(tmp_path / "a", {"integrity": check.integrity}) as daemon,
        daemon.connect() as client,
        peers.listen(language, daemon.port, *check.options) as listener,
    ):
        for payload in sent:
            client.publish("demo-x/@1", payload)
        heard = listener.until(b" last\n")
        src, first, _ = heard.split(b" ", 2)
        assert src.decode() == client.identity()
        lines = (b"%b %d demo-x/@1 %b\n" % (src, seq, payload) for seq, payload in enumerate(sent, int(first)))
        assert heard == b"".join(lines)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sender_reaches_plain_all_and_directed_receivers(daemon: Daemon, peers: Peers, language: str) -> None:
    with daemon.connect("demo/") as one, daemon.connect() as two:
        host, program, _ = one.identity().split("/")
        everyone = ["!", f"!{one.identity()}", f"!{host}/{program}", f"!{host}/*", f"!{host}"]
        for seq, chan in enumerate(["demo/x", *everyone, f"!{one.identity()}/1", "!relay99"], start=1):
            peers.tell(language, daemon.port, SRC, seq, chan, chan.encode())
        assert payloads(one, 6) == [b"demo/x", *(chan.encode() for chan in everyone)]
        assert payloads(two, 5) == [chan.encode() for chan in everyone]
        wait(lambda: daemon.verdicts() == {"accepted": 6, "not_addressed": 2})


def test_a_sender_may_use_any_port(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect("demo/") as client:
        peers.tell("c", daemon.port, "c/1", 1, "demo/x", b"from a port of its own")
        assert message_of(client).peer != f"127.0.0.1:{daemon.port}"
        peers.tell("perl", daemon.port, "perl/1", 1, "demo/x", b"from the port of all")
        assert message_of(client).peer == f"127.0.0.1:{daemon.port}"


def test_a_sender_that_starts_again_at_1_is_heard_at_once(tmp_path: Path, peers: Peers) -> None:
    horizon = 0.2
    with Daemon(tmp_path / "a", {"dedup": {"horizon": horizon}}) as daemon, daemon.connect("demo/") as client:
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"1", b"2", b"3")
        assert payloads(client, 3) == [b"1", b"2", b"3"]
        time.sleep(3 * horizon)
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"again", b"and on")
        assert payloads(client, 2) == [b"again", b"and on"]
        assert daemon.verdicts() == {"accepted": 4, "restart": 1}
        assert daemon.metric("source_restarts_total") == 1


def test_a_sender_that_starts_again_within_the_horizon_is_taken_for_a_copy(tmp_path: Path, peers: Peers) -> None:
    with Daemon(tmp_path / "a", {"dedup": {"horizon": "1h"}}) as daemon, daemon.connect("demo/") as client:
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"1", b"2", b"3")
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"again 1", b"again 2", b"again 3", b"caught up")
        assert payloads(client, 4) == [b"1", b"2", b"3", b"caught up"]
        assert daemon.verdicts() == {"accepted": 4, "duplicate": 3}
        # What starts at the clock, as many do, never looks like a copy.
        for _ in range(2):
            peers.tell("c", daemon.port, "relay02/clock/8", time.time_ns() // 1000, "demo/x", b"by the clock")
        assert payloads(client, 2) == [b"by the clock"] * 2


def test_a_sender_that_starts_again_at_1_is_refused_where_numbers_must_rise(tmp_path: Path, peers: Peers) -> None:
    rules = {"horizon": 0.2, "freshness": "monotonic"}
    with Daemon(tmp_path / "a", {"dedup": rules}) as daemon, daemon.connect("demo/") as client:
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"1", b"2")
        assert payloads(client, 2) == [b"1", b"2"]
        time.sleep(3 * 0.2)
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"again")
        wait(lambda: daemon.verdicts() == {"accepted": 2, "replayed": 1})
        peers.tell("c", daemon.port, SRC, 3, "demo/x", b"3")
        assert payloads(client, 1) == [b"3"]


@pytest.mark.parametrize(
    ("limit", "verdicts"), [(None, {"accepted": 1, "oversize": 1}), (1501, {"accepted": 2})], ids=["usual", "raised"]
)
def test_a_datagram_of_1500_bytes_is_taken_and_one_of_1501_is_oversize(
    tmp_path: Path, peers: Peers, limit: int | None, verdicts: dict[str, int]
) -> None:
    sent = [padded(1500, SRC, 1, "demo/x"), padded(1501, SRC, 2, "demo/x")]
    with Daemon(tmp_path / "a", {"max_datagram": limit} if limit else {}) as daemon, daemon.connect("demo/") as client:
        peers.tell("perl", daemon.port, SRC, 1, "demo/x", *sent)
        wait(lambda: daemon.verdicts() == verdicts)
        assert payloads(client, verdicts["accepted"]) == sent[: verdicts["accepted"]]
        assert client.receive(0.1) is None


def test_an_unnamed_sender_is_heard_whatever_its_numbers(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect("demo/") as client:
        for payload in (b"one", b"two", b"one"):  # the last one from the same port: a copy of the first
            peers.tell("perl", daemon.port, "?", 1, "demo/x", payload)
        peers.tell("c", daemon.port, "?", 1, "demo/x", b"one")  # the same words from another port: somebody else
        assert payloads(client, 3) == [b"one", b"two", b"one"]
        assert daemon.verdicts() == {"accepted": 3, "duplicate": 1}


def test_what_is_sent_twice_with_one_seq_is_delivered_once(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect("demo/") as client:
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"1", b"2", b"3", options=["--twice"])
        assert payloads(client, 3) == [b"1", b"2", b"3"]
        wait(lambda: daemon.verdicts() == {"accepted": 3, "duplicate": 3})
        assert client.receive(0.1) is None
        assert daemon.metric("messages_lost_total") == 0


def test_two_senders_with_one_src_are_taken_for_copies_of_each_other(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect("demo/") as client:
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"c 1", b"c 2")
        peers.tell("perl", daemon.port, SRC, 1, "demo/x", b"perl 1", b"perl 2")
        peers.tell("perl", daemon.port, f"{SRC}/1", 1, "demo/x", b"under a src of its own")
        assert payloads(client, 3) == [b"c 1", b"c 2", b"under a src of its own"]
        assert daemon.verdicts() == {"accepted": 3, "duplicate": 2}


def test_a_name_with_a_leading_exclamation_mark_is_no_plain_name_here(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect("", "!news") as subscriber, daemon.connect() as other:
        for seq, chan in enumerate(["!news", "!", "!relay01", "news!"], start=1):
            peers.tell("c", daemon.port, SRC, seq, chan, chan.encode())
        # It looks like a message to somebody called news, who is not here; "!" is for everyone.
        assert payloads(subscriber, 3) == [b"!", b"!relay01", b"news!"]
        assert payloads(other, 2) == [b"!", b"!relay01"]
        assert daemon.verdicts() == {"accepted": 3, "not_addressed": 1}


@pytest.mark.parametrize(
    ("chan", "verdict"), [("a:b", "bad_body"), ("a b", "bad_channel"), ("caf\u00e9", "bad_channel")]
)
def test_a_name_that_the_protocol_forbids_is_refused(daemon: Daemon, peers: Peers, chan: str, verdict: str) -> None:
    with daemon.connect("") as client:
        peers.tell("perl", daemon.port, SRC, 1, chan, b"refused")
        peers.tell("perl", daemon.port, SRC, 2, "a|b", b"cut")
        message = message_of(client)
        assert (message.chan, message.payload) == ("a", b"b|cut")  # the first bar ends the name
        assert daemon.verdicts() == {verdict: 1, "accepted": 1}


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_unsigned_sender_is_heard_where_no_check_is_required(tmp_path: Path, peers: Peers, language: str) -> None:
    check = check_of("hmac", tmp_path)
    with Daemon(tmp_path / "a", {"integrity": check.integrity}) as daemon, daemon.connect("demo/") as client:
        peers.tell(language, daemon.port, SRC, 1, "demo/x", b"refused")
        wait(lambda: daemon.verdicts() == {"integrity_missing": 1})
        daemon.configure({"integrity": {"required": False}})
        daemon.reload()
        peers.tell(language, daemon.port, SRC, 2, "demo/x", b"heard")
        assert payloads(client, 1) == [b"heard"]


def test_a_sender_with_another_key_or_algorithm_is_refused(tmp_path: Path, peers: Peers) -> None:
    check = check_of("hmac", tmp_path)
    other = tmp_path / "other.key"
    other.write_bytes(b"this is not the key of the segment")
    with Daemon(tmp_path / "a", {"integrity": check.integrity}) as daemon, daemon.connect("demo/") as client:
        peers.tell("perl", daemon.port, "perl/1", 1, "demo/x", b"another key", options=["--key", str(other)])
        peers.tell("c", daemon.port, "c/1", 1, "demo/x", b"another algorithm", options=["--crc32"])
        wait(lambda: daemon.verdicts() == {"integrity_failed": 1, "integrity_unknown": 1})
        daemon.configure({"integrity": {"unverifiable": "accept"}})
        daemon.reload()
        peers.tell("perl", daemon.port, "perl/1", 1, "demo/x", b"another key", options=["--key", str(other)])
        peers.tell("c", daemon.port, "c/1", 1, "demo/x", b"another algorithm", options=["--crc32"])
        assert payloads(client, 1) == [b"another algorithm"]
        assert daemon.verdicts() == {"integrity_failed": 2, "integrity_unknown": 1, "accepted": 1}


def test_a_signed_sender_is_refused_where_no_algorithm_is_set(daemon: Daemon, tmp_path: Path, peers: Peers) -> None:
    check = check_of("hmac", tmp_path)
    with daemon.connect("demo/") as client:
        peers.tell("perl", daemon.port, SRC, 1, "demo/x", b"refused", options=check.options)
        wait(lambda: daemon.verdicts() == {"integrity_unknown": 1})
        daemon.configure({"integrity": {"unverifiable": "accept"}})
        daemon.reload()
        peers.tell("perl", daemon.port, SRC, 2, "demo/x", b"heard unverified", options=check.options)
        assert payloads(client, 1) == [b"heard unverified"]


def test_heartbeats_go_both_ways(tmp_path: Path, peers: Peers) -> None:
    with (
        Daemon(tmp_path / "a", {"heartbeat": {"interval": "200ms"}}) as daemon,
        daemon.raw() as bus,
        peers.listen("perl", daemon.port, "--habits") as listener,
    ):
        assert daemon.process is not None
        name = f"relay01/bccnd/{daemon.process.pid}"
        assert [line.split(b" ")[::2] for line in listener.lines(2)] == [
            [name.encode(), f"heartbeat/{name}".encode()]
        ] * 2
        bus.send(b"SUB !/bccn/liveness/")
        bus.send(b"CMSG !/bccn/sync")
        assert bus.recv(65536) == b"CMSG !/bccn/sync\0"
        peers.tell("shell", daemon.port, SRC, 1, f"heartbeat/{SRC}", b"")
        assert bus.recv(65536) == f"MSG !/bccn/liveness/{SRC}\0alive".encode()
        # It sends no second one: first it is late, then it is dead.
        assert bus.recv(65536).startswith(f"MSG !/bccn/liveness/{SRC}\0".encode())


@pytest.mark.root
@pytest.mark.parametrize(("language", "algorithm"), [("c", "none"), ("c", "crc32"), ("perl", "hmac")])
def test_peers_on_other_hosts_hear_and_are_heard(
    tmp_path: Path, net: Net, peers: Peers, language: str, algorithm: str
) -> None:
    check = check_of(algorithm, tmp_path)
    daemon = net.daemon("a", tmp_path, start=False)
    daemon.configure({"integrity": {"keys": [], **check.integrity}})
    daemon.start()
    with (
        daemon,
        daemon.connect("demo/") as client,
        peers.listen(language, PORT, *check.options, on=net.on("b")) as listener,
    ):
        client.publish("demo/x", b"from a")
        heard = listener.until(b" demo/x from a\n")
        assert heard.startswith(client.identity().encode())
        # Longer than a frame of the wire: it comes in two fragments.
        long = b"x" * 1440
        peers.tell(
            language, PORT, "host-c/peer/7", 1, "demo/x", long, options=check.options, to="10.77.0.255", on=net.on("c")
        )
        assert listener.lines(1) == [b"host-c/peer/7 1 demo/x " + long]
        assert payloads(client, 2) == [b"from a", long]
        wait(lambda: daemon.verdicts() == {"accepted": 1, "looped": 1})


# -- Net::BCCN, receiving


def test_the_perl_reader_hears_names_of_its_own_characters(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect() as client, peers.listen("perl", daemon.port, "--habits") as listener:
        client.publish("Demo_1/x.y?", b"hello")
        client.publish("demo/x", b"world")
        src = client.identity().encode()
        first, second = (line.split(b" ") for line in listener.lines(2))
        assert first == [src, first[1], b"Demo_1/x.y?", b"hello"]
        assert second == [src, b"%d" % (int(first[1]) + 1), b"demo/x", b"world"]


@pytest.mark.parametrize(("host", "program"), [("relay-01", "card"), ("relay01", "card-sys")])
def test_the_perl_reader_discards_a_src_with_a_hyphen(tmp_path: Path, peers: Peers, host: str, program: str) -> None:
    with (
        Daemon(tmp_path / "a", {"host": host}) as daemon,
        peers.listen("c", daemon.port) as c,
        peers.listen("perl", daemon.port, "--habits") as perl,
    ):
        named_client(tmp_path, program, daemon, b"MSG demo/x\0hello")
        assert c.lines(1)[0].startswith(f"{host}/{program}/".encode())
        assert perl.so_far() == []


def test_the_perl_reader_discards_channels_with_other_characters(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect() as client, peers.listen("perl", daemon.port, "--habits") as listener:
        for chan in ("demo-x", "demo/x+y", "demo@x", "!", "!relay01", "demo/!"):
            client.publish(chan, b"")
        assert client.sync() == []
        assert listener.so_far() == []
        assert daemon.metric("datagrams_sent_total") == 6


def test_the_perl_reader_cuts_a_payload_at_its_first_newline(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect() as client, peers.listen("perl", daemon.port, "--habits") as listener:
        client.publish("demo/x", b"one\ntwo\n")
        client.publish("demo/x", b"b\0c\r|d")  # any other byte is fine
        assert client.sync() == []
        assert payloads_in(listener.so_far()) == [b"one", b"b\0c\r|d"]


def test_the_perl_reader_looks_at_no_sum(tmp_path: Path, peers: Peers) -> None:
    check = check_of("hmac", tmp_path)
    other = tmp_path / "other.key"
    other.write_bytes(b"this is not the key of the segment")
    with (
        Daemon(tmp_path / "a", {"integrity": check.integrity}) as daemon,
        daemon.connect() as client,
        peers.listen("perl", daemon.port, "--habits") as careless,
        peers.listen("perl", daemon.port, *check.options) as careful,
    ):
        client.publish("demo/x", b"signed")
        assert client.sync() == []
        peers.tell("perl", daemon.port, SRC, 1, "demo/x", b"forged", options=["--key", str(other)])
        peers.tell("perl", daemon.port, SRC, 2, "demo/x", b"unsigned")
        peers.tell("perl", daemon.port, SRC, 3, "demo/x", b"good", options=check.options)
        assert payloads_in(careless.so_far()) == [b"signed", b"forged", b"unsigned", b"good"]
        assert payloads_in(careful.lines(2)) == [b"signed", b"good"]


def test_the_perl_reader_drops_copies_and_nothing_else(tmp_path: Path, peers: Peers) -> None:
    segments = Daemon(tmp_path / "none", start=False).settings["segments"]
    port = segments[0]["port"]
    with peers.listen("perl", port, "--habits") as every, peers.listen("perl", port, "--habits", "--dd") as once:
        # A restart must not begin at numbers that were there before, or they would be taken for copies.
        for run_of_it in (b"first", b"second"):
            with (
                Daemon(tmp_path / run_of_it.decode(), {"segments": segments}) as daemon,
                daemon.connect() as client,
            ):
                client.publish("demo/x", run_of_it)
                client.publish("demo/x", run_of_it)
                assert client.sync() == []
        peers.tell("c", port, SRC, 1, "demo/x", b"twice", options=["--twice"])
        ours = [b"first", b"first", b"second", b"second"]
        assert payloads_in(every.so_far()) == [*ours, b"twice", b"twice"]
        assert payloads_in(once.so_far()) == [*ours, b"twice"]


def test_repeats_reach_every_reader_and_are_dropped_where_copies_are(tmp_path: Path, peers: Peers) -> None:
    repeat = [{"channels": "demo/twice", "copies": 2, "spacing": "1ms"}]
    with (
        Daemon(tmp_path / "a", {"repeat": repeat}) as daemon,
        daemon.connect("demo/") as client,
        peers.listen("c", daemon.port) as c,
        peers.listen("perl", daemon.port, "--habits", "--dd") as perl,
    ):
        client.publish("demo/twice", b"important")
        assert payloads_in(c.lines(2)) == [b"important"] * 2
        client.publish("demo/once", b"usual")
        assert payloads_in(c.lines(1)) == [b"usual"]
        assert payloads_in(perl.so_far()) == payloads(client, 2) == [b"important", b"usual"]
        wait(lambda: daemon.verdicts() == {"looped": 3, "accepted": 1})  # the mark of `so_far` was accepted


def test_perl_safe_names_reach_the_perl_reader(tmp_path: Path, peers: Peers) -> None:
    with Daemon(tmp_path / "a", {"host": "relay-01", "names": "perl-safe"}) as daemon, daemon.connect() as client:
        with peers.listen("perl", daemon.port, "--habits") as listener:
            named_client(tmp_path, "card-sys+2", daemon, b"MSG demo/x\0hello")
            assert re.fullmatch(rb"relay_01/card_sys_2/\d+ \d+ demo/x hello", listener.lines(1)[0])
        # The new name is what a program is called in every respect.
        assert client.identity().startswith("relay_01/")
        peers.tell("perl", daemon.port, SRC, 1, f"!{client.identity()}", b"for you")
        assert payloads(client, 1) == [b"for you"]


def test_perl_safe_keeps_names_that_perl_discards_on_this_host_and_says_so(tmp_path: Path, peers: Peers) -> None:
    chans = ["log-1", "a+b", "demo/@x", "caf\u00e9"]
    with (
        Daemon(tmp_path / "a", {"names": "perl-safe"}) as daemon,
        daemon.connect("") as reader,
        daemon.connect() as writer,
        peers.listen("c", daemon.port) as listener,
    ):
        for chan in chans:
            writer.publish(chan, chan)
        told = [(refusal.reason, refusal.key) for refusal in writer.sync()]
        assert told[:3] == [("not_perl_safe", chan) for chan in chans[:3]]
        assert told[3] in (("not_perl_safe", chans[3]), ("bad_channel", chans[3]))  # it is neither
        assert payloads(reader, 4) == [chan.encode() for chan in chans]
        writer.publish("log_1", b"everywhere")
        assert writer.sync() == []
        assert [line.split(b" ", 2)[2] for line in listener.so_far()] == [b"log_1 everywhere"]


def test_perl_safe_lets_the_all_and_directed_forms_pass(tmp_path: Path, peers: Peers) -> None:
    with (
        Daemon(tmp_path / "a", {"names": "perl-safe"}) as daemon,
        daemon.connect() as client,
        peers.listen("c", daemon.port) as listener,
    ):
        for chan in ("!", "!relay-99", "!relay-99/card-sys/*"):
            client.publish(chan, b"")
        assert client.sync() == []
        assert [line.split(b" ")[2] for line in listener.so_far()] == [b"!", b"!relay-99", b"!relay-99/card-sys/*"]


# -- Net::BCCN, sending


def test_what_the_perl_sender_sends_is_heard(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect("demo/") as client, peers.listen("perl", daemon.port, "--habits") as listener:
        peers.tell("perl", daemon.port, SRC, 1, "demo/x", b"one", b"two")
        peers.tell("perl", daemon.port, "?", 1, "demo/x", b"without a name")  # the module's default
        assert [(one.src, one.seq, one.payload) for one in (message_of(client) for _ in range(3))] == [
            (SRC, 1, b"one"),
            (SRC, 2, b"two"),
            ("?", 1, b"without a name"),
        ]
        assert listener.lines(3)[2] == b"? 1 demo/x without a name"
        # Its sender shared the port with the daemon, and has left everything as it was.
        assert daemon.verdicts() == {"accepted": 3}


# -- C and Go, receiving


def test_the_c_reader_hears_what_a_client_publishes(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect() as client, peers.listen("c", daemon.port) as listener:
        for chan in ("demo-x/@1", "d" * 1024, "#"):  # it minds no name that the protocol allows
            client.publish(chan, BYTES)
        assert client.sync() == []
        src = client.identity().encode()
        for line, heard in zip(listener.so_far(), (b"demo-x/@1", b"d" * 1024, b"#"), strict=True):
            assert line.split(b" ", 3)[::2] == [src, heard]
            assert line.endswith(BYTES)


@pytest.mark.parametrize("algorithm", ["crc32", "hmac", "sig"])
def test_the_c_reader_refuses_every_datagram_with_a_check(tmp_path: Path, peers: Peers, algorithm: str) -> None:
    check = check_of(algorithm, tmp_path)
    with (
        Daemon(tmp_path / "a", {"integrity": check.integrity}) as daemon,
        daemon.connect() as client,
        peers.listen("c", daemon.port) as listener,
    ):
        client.publish("demo/x", b"signed")
        assert client.sync() == []
        assert listener.so_far() == []
        assert daemon.metric("datagrams_sent_total") == 1


def test_the_c_reader_hears_everything_once_the_algorithm_is_none(tmp_path: Path, peers: Peers) -> None:
    check = check_of("hmac", tmp_path)
    with (
        Daemon(tmp_path / "a", {"integrity": check.integrity}) as daemon,
        daemon.connect() as client,
        peers.listen("c", daemon.port) as listener,
    ):
        client.publish("demo/x", b"signed")
        assert client.sync() == []
        daemon.configure({"integrity": {"algorithm": "none", "keys": []}})
        daemon.reload()
        client.publish("demo/x", b"unsigned")
        assert payloads_in(listener.lines(1)) == [b"unsigned"]


def test_the_c_reader_takes_an_exclamation_mark_for_a_part_of_the_name(daemon: Daemon, peers: Peers) -> None:
    with (
        daemon.connect() as client,
        peers.listen("c", daemon.port, "!relay99") as named,
        peers.listen("c", daemon.port, "demo/x") as other,
    ):
        client.publish("!relay99", b"for somebody else")
        client.publish("!", b"for everyone")
        client.publish("demo/x", b"end")
        client.publish("!relay99", b"end")
        # It is nobody called relay99 and hears it; it is one of everyone and does not.
        assert payloads_in(named.lines(2)) == [b"for somebody else", b"end"]
        assert payloads_in(other.lines(1)) == [b"end"]


# -- C and Go, sending


def test_a_c_sender_is_heard_from_its_first_seq_1(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect("demo/") as client:
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"first")
        assert message_of(client)[:4] == (SRC, 1, "demo/x", b"first")
        assert daemon.metric("messages_lost_total") == daemon.metric("messages_missing") == 0


def test_a_c_sender_may_fill_1500_bytes_and_goes_no_further(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect("demo/") as client:
        longest = padded(1500, SRC, 1, "demo/x")
        peers.tell("c", daemon.port, SRC, 1, "demo/x", longest)
        assert payloads(client, 1) == [longest]
        with pytest.raises(AssertionError, match="too long"):
            peers.tell("c", daemon.port, SRC, 1, "demo/x", longest + b"x")


# -- other programs of this host


def test_programs_of_one_host_share_the_port(daemon: Daemon, peers: Peers) -> None:
    with (
        daemon.connect("demo/") as client,
        peers.listen("c", daemon.port) as c,
        peers.listen("perl", daemon.port, "--habits") as perl,
        peers.listen("shell", daemon.port) as shell,
    ):
        client.publish("demo/x", b"from the daemon")
        ours = message_of(client)
        line = f"{ours.src} {ours.seq} demo/x from the daemon".encode()
        assert c.lines(1) == perl.lines(1) == [line]
        assert shell.lines(1) == [datagram(ours.src, ours.seq, "demo/x", b"from the daemon")]
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"from C")
        assert c.lines(1) == perl.lines(1) == [SRC.encode() + b" 1 demo/x from C"]
        assert shell.lines(1) == [datagram(SRC, 1, "demo/x", b"from C")]
        assert payloads(client, 1) == [b"from C"]
        assert daemon.verdicts() == {"accepted": 1, "looped": 1}


def test_a_unicast_datagram_reaches_only_one_of_the_programs_that_share_the_port(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect("demo/") as client, peers.listen("c", daemon.port) as listener:
        peers.tell("c", daemon.port, SRC, 1, "demo/x", b"to one", to="127.0.0.1")
        peers.tell("c", daemon.port, SRC, 2, "demo/x", b"to all")
        here = payloads(client, 1)
        while here[-1] != b"to all":
            here += payloads(client, 1)
        there = payloads_in(listener.so_far())
        assert sorted(here + there) == [b"to all", b"to all", b"to one"]


def test_a_program_that_does_not_share_the_port_keeps_the_daemon_from_starting(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", start=False)
    with Listener(daemon.port, [need("socat"), "-u", f"UDP4-RECV:{daemon.port}", "-"]):
        assert "in use by a program that does not share it" in refused(daemon)


def test_nobody_is_heard_under_the_name_of_a_local_client(daemon: Daemon, peers: Peers) -> None:
    with daemon.connect("demo/") as client:
        peers.tell("c", daemon.port, client.identity(), 1, "demo/x", b"not from the client")
        wait(lambda: daemon.verdicts() == {"looped": 1})
        assert client.receive(0.1) is None


@pytest.mark.parametrize(("dialect", "separator"), [("sbus", "/"), ("sbus-dot", ".")])
def test_an_sbus_client_finds_what_it_knows(tmp_path: Path, peers: Peers, dialect: str, separator: str) -> None:
    def name(path: str) -> str:
        return path.replace("/", separator)

    with Daemon(tmp_path / "a", {"bus": {"dialect": dialect}}) as daemon, daemon.raw() as bus:
        for pattern in ("demo/*/z\0ignored", "log/", "a/>"):
            bus.send(f"SUB {name(pattern)}".encode())
        bus.send(b"CMSG !/cred/whoami")
        credentials = f"!/cred/{os.getgid()}/{os.getuid()}/{os.getpid()}"
        assert bus.recv(65536) == f"CMSG !/cred/whoami\0{credentials}".encode()
        # ">" is a character like any other.
        for number, chan in enumerate(["demo/y/z", "demo/y", "log/a/b", "a/b", "a/>"]):
            peers.tell("perl", daemon.port, SRC, number, name(chan), b"hi")
        for chan in ("demo/y/z", "log/a/b", "a/>"):
            assert bus.recv(65536) == f"MSG {name(chan)}\0hi".encode()
        bus.send(f"UNSUB {name('log/')}".encode())
        bus.send(f"MSG {name('log/a')}\0not for me".encode())
        bus.send(f"MSG {name('demo/1/z')}\0for me too".encode())
        assert bus.recv(65536) == f"MSG {name('demo/1/z')}\0for me too".encode()


def test_sbus_modes_are_taken_without_a_word(daemon: Daemon) -> None:
    with daemon.raw() as bus:
        modes = ("echo/off", "blocking/soft/discard", "blocking/hard/block", "order/stack", "order/queue", "echo/on")
        for key in modes:
            bus.send(f"CMSG {key}".encode())
            bus.send(f"CMSG {key}\0ignored".encode())
        for packet, reason in (
            (b"CMSG order/sideways", b"unknown_control order/sideways"),
            (b"bad", b"unknown_verb bad"),
        ):
            bus.send(packet)
            assert bus.recv(65536) == b"CMSG !/bccn/error\0" + reason
        bus.send(b"SUB a")
        bus.send(b"MSG a\0still here")
        assert bus.recv(65536) == b"MSG a\0still here"


# -- socat and the shell


def test_a_line_of_shell_is_heard_if_its_length_is_right(daemon: Daemon) -> None:
    need("socat")
    with daemon.connect("demo/") as client:
        line = f"printf '%s' \"$0\" | socat - UDP4-DATAGRAM:{BROADCAST}:{daemon.port},broadcast"
        for length in (21, 20):
            run("sh", "-c", line, f"BCCN1[{length}]shell:1:demo/x|hello")
        assert payloads(client, 1) == [b"hello"]
        assert daemon.verdicts() == {"length_mismatch": 1, "accepted": 1}


@pytest.mark.parametrize("algorithm", ["none", "hmac"])
def test_socat_shows_datagrams_as_they_are_on_the_wire(tmp_path: Path, peers: Peers, algorithm: str) -> None:
    check = check_of(algorithm, tmp_path)
    everything = bytes(range(256))
    with (
        Daemon(tmp_path / "a", {"integrity": check.integrity}) as daemon,
        daemon.connect("demo/") as client,
        peers.listen("shell", daemon.port) as listener,
    ):
        client.publish("demo/x", everything)
        ours = message_of(client)
        expected = datagram(ours.src, ours.seq, "demo/x", everything, KEY if algorithm == "hmac" else None)
        assert listener.until(everything[-1:] + b"\n") == expected + b"\n"


def test_socat_is_a_client_of_the_bus(daemon: Daemon, tmp_path: Path) -> None:
    with daemon.connect("demo/") as client:
        named_client(tmp_path, "from-shell", daemon, b"MSG demo/x\0hello")
        message = message_of(client)
        assert message.payload == b"hello"
        assert re.fullmatch(r"relay01/from-shell/\d+", message.src)


# -- signatures and OpenSSL


def sig(folder: Path, signers: dict[str, Sequence[Path]], *private: Path) -> dict[str, Any]:
    """Settings with signatures."""
    names = {prefix: [str(key) for key in keys] for prefix, keys in signers.items()}
    keys = [str(key) for key in private] or [str(openssl_keys(folder / "own.pem")[0])]
    return {"integrity": {"algorithm": "sig", "keys": keys, "signers": names}}


def test_what_openssl_has_signed_is_verified(tmp_path: Path, peers: Peers) -> None:
    private, public = openssl_keys(tmp_path / "relay02.pem")
    with (
        Daemon(tmp_path / "a", sig(tmp_path, {"relay02": [public]})) as daemon,
        daemon.connect("demo/") as client,
        peers.listen("shell", daemon.port) as listener,
        Wire(daemon.port) as wire,
    ):
        sign = ["--sign", str(private)]
        peers.tell("shell", daemon.port, SRC, 1, "demo/x", b"signed", options=sign)
        signed = listener.lines(1)[0]
        assert re.match(rb"BCCN1\[\d+:sig=[0-9a-f]{128}\]", signed)
        wire.send(signed.replace(b"|signed", b"|forged").replace(b":1:", b":2:"))
        wire.send(signed.replace(b":1:", b":3:"))
        peers.tell("shell", daemon.port, SRC, 4, "demo/x", b"unsigned")
        peers.tell("shell", daemon.port, "relay03/peer/7", 1, "demo/x", b"no key of his is here", options=sign)
        peers.tell("shell", daemon.port, SRC, 5, "demo/x", b"last", options=sign)
        assert payloads(client, 2) == [b"signed", b"last"]
        assert daemon.verdicts() == {
            "accepted": 2,
            "integrity_failed": 2,
            "integrity_missing": 1,
            "integrity_unknown": 1,
        }


def test_openssl_verifies_what_the_daemon_has_signed(tmp_path: Path, peers: Peers) -> None:
    private, public = openssl_keys(tmp_path / "own.pem")
    _, other = openssl_keys(tmp_path / "other.pem")
    with (
        Daemon(tmp_path / "a", sig(tmp_path, {}, private)) as daemon,
        daemon.connect() as client,
        Wire(daemon.port) as wire,
    ):
        client.publish("demo/x", bytes(range(256)))
        sent = wire.hear(b"demo/x")
        assert re.match(rb"BCCN1\[\d+:sig=[0-9a-f]{128}\]" + client.identity().encode(), sent)
        assert b"Verified Successfully" in run(*peers.shell, "verify", public, stdin=sent)
        for key, data in ((other, sent), (public, sent.replace(b"demo/x", b"demo/y"))):
            with pytest.raises(AssertionError, match=r"peer\.sh"):
                run(*peers.shell, "verify", key, stdin=data)


def test_the_key_of_the_longest_prefix_alone_speaks_for_a_src(tmp_path: Path, peers: Peers) -> None:
    pairs = {name: openssl_keys(tmp_path / f"{name}.pem") for name in ("rest", "host", "program", "program_2")}
    public = {name: pair[1] for name, pair in pairs.items()}
    signers: dict[str, Sequence[Path]] = {
        "": [public["rest"]],
        "relay02": [public["host"]],
        "relay02/card": [public["program"], public["program_2"]],  # two, as while a key is being changed
    }
    accepted = [
        ("rest", "relay03/card/7"),
        ("rest", "relay022/card/7"),  # a prefix counts by whole tokens
        ("host", "relay02/mail/7"),
        ("host", "relay02/cards/7"),
        ("program", "relay02/card/7"),
        ("program_2", "relay02/card/8/1"),
    ]
    failed = [("host", "relay02/card/9"), ("rest", "relay02/mail/9"), ("host", "relay03/card/9"), ("rest", "relay02")]
    with Daemon(tmp_path / "a", sig(tmp_path, signers)) as daemon, daemon.connect("demo/") as client:
        for name, src in [*failed, *accepted]:
            sign = ["--sign", str(pairs[name][0])]
            peers.tell("shell", daemon.port, src, 1, "demo/x", f"{name} {src}".encode(), options=sign)
        assert payloads(client, len(accepted)) == [f"{name} {src}".encode() for name, src in accepted]
        assert daemon.verdicts() == {"accepted": len(accepted), "integrity_failed": len(failed)}


def test_the_own_key_verifies_what_other_programs_of_this_host_sign(tmp_path: Path, peers: Peers) -> None:
    private, _ = openssl_keys(tmp_path / "own.pem")
    other, public = openssl_keys(tmp_path / "other.pem")
    with (
        Daemon(tmp_path / "a", sig(tmp_path, {"relay02": [public]}, private)) as daemon,
        daemon.connect("demo/") as client,
    ):
        peers.tell("shell", daemon.port, "relay01/shell/7", 1, "demo/x", b"ours", options=["--sign", str(private)])
        peers.tell("shell", daemon.port, "relay01/shell/7", 2, "demo/x", b"forged", options=["--sign", str(other)])
        wait(lambda: daemon.verdicts() == {"accepted": 1, "integrity_failed": 1})
        assert payloads(client, 1) == [b"ours"]


def test_a_host_without_a_key_of_its_own_hears_and_says_that_it_cannot_send(tmp_path: Path, peers: Peers) -> None:
    private, public = openssl_keys(tmp_path / "relay02.pem")
    settings = {"integrity": {"algorithm": "sig", "signers": {"relay02": [str(public)]}}}
    with Daemon(tmp_path / "a", settings) as daemon, daemon.connect("demo/") as client:
        peers.tell("shell", daemon.port, SRC, 1, "demo/x", b"heard", options=["--sign", str(private)])
        assert payloads(client, 1) == [b"heard"]
        client.publish("demo/y", b"for this host")
        assert [(refusal.reason, refusal.key) for refusal in client.sync()] == [("no_signing_key", "demo/y")]
        assert payloads(client, 1) == [b"for this host"]
        assert daemon.metric("datagrams_sent_total") == 0


def test_keys_from_bccn_keygen_and_from_openssl_are_of_one_kind(tmp_path: Path, peers: Peers) -> None:
    need("openssl")
    private = tmp_path / "made.pem"
    public = Path(f"{private}.pub")
    run(str(BIN / "bccn"), "keygen", "--algorithm", "sig", private)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert not stat.S_IMODE(public.stat().st_mode) & 0o022
    assert run("openssl", "pkey", "-in", private, "-pubout") == public.read_bytes()
    with (
        Daemon(tmp_path / "a", sig(tmp_path, {"relay02": [public]}, private)) as daemon,
        daemon.connect("demo/") as client,
        Wire(daemon.port) as wire,
    ):
        peers.tell("shell", daemon.port, SRC, 1, "demo/x", b"by openssl", options=["--sign", str(private)])
        assert payloads(client, 1) == [b"by openssl"]
        client.publish("demo/y", b"by the daemon")
        run(*peers.shell, "verify", public, stdin=wire.hear(b"demo/y"))


@pytest.mark.parametrize(("which", "mode"), [(0, 0o640), (0, 0o604), (1, 0o664), (1, 0o646)])
def test_a_key_that_others_could_read_or_replace_is_refused(tmp_path: Path, which: int, mode: int) -> None:
    keys = openssl_keys(tmp_path / "own.pem")
    keys[which].chmod(mode)
    said = refused(Daemon(tmp_path / "a", sig(tmp_path, {"relay02": [keys[1]]}, keys[0]), start=False))
    assert keys[which].name in said
    assert "chmod" in said


# -- the page


NAMED = re.compile(r"`(tests/e2e/test_\w+\.py)::(test_\w+)`")


def page_rows() -> list[str]:
    """The lines of the page's tables, without their heads."""
    text = PAGE.read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    heads = {number for number, row in enumerate(rows) if set(row) <= set("|- ")}
    return [row for number, row in enumerate(rows) if not {number, number + 1} & heads]


def test_every_line_of_the_page_names_a_test_that_exists() -> None:
    rows = page_rows()
    assert len(rows) > 20
    for row in rows:
        named = NAMED.findall(row)
        assert named, f"no test is named in: {row}"
        for file, test in named:
            assert f"\ndef {test}(" in (ROOT / file).read_text(), f"there is no such test: {row}"


def test_every_test_is_named_on_the_page() -> None:
    named = {test for _, test in NAMED.findall(PAGE.read_text())}
    tests = {name for name in globals() if name.startswith("test_")}
    assert {name for name in tests - named if not name.startswith("test_every_")} == set()
