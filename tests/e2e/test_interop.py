"""The daemon and programs that share no line with it: small peers in C, Perl and shell, written from the protocol."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import bccnd
from tests.e2e.harness import BIN, KEY, PATIENCE, Daemon, Wire, payloads, wait
from tests.e2e.listener import Listener
from tests.e2e.shared import Since, in_force, new_src
from tests.support import BROADCAST, ROOT, cannot_here

HERE = ROOT / "tests/peers"
#: every byte but the line end, which ends a payload on the way into a peer
BYTES = bytes(range(256)).replace(b"\n", b"")


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

    def report(
        self,
        language: str,
        port: int,
        src: str,
        seq: int,
        chan: str,
        *messages: bytes,
        options: Sequence[str] = (),
    ) -> None:
        """Let a peer send messages, from ``seq`` on."""
        command: list[str] = [*getattr(self, language), "send", BROADCAST, str(port), src]
        if language == "shell":
            for number, message in enumerate(messages, seq):
                run(*command, str(number), chan, message, *options)
        else:
            run(*command, str(seq), chan, *options, stdin=b"".join(message + b"\n" for message in messages))

    def listen(self, language: str, port: int, *options: str) -> Listener:
        return Listener(port, [*getattr(self, language), "listen", "0.0.0.0", str(port), *options])


def openssl_keys(private: Path) -> tuple[Path, Path]:
    """A private key and its public one, made by openssl."""
    public = private.with_suffix(".pub")
    run(need("openssl"), "genpkey", "-algorithm", "ed25519", "-out", private)
    private.chmod(0o600)
    run(need("openssl"), "pkey", "-in", private, "-pubout", "-out", public)
    public.chmod(0o644)
    return private, public


def message_of(client: bccnd.Connection) -> bccnd.Message:
    message = client.receive(PATIENCE)
    assert isinstance(message, bccnd.Message)
    return message


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Peers:
    return Peers(tmp_path_factory.mktemp("peers"))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon without any check."""
    with Daemon(tmp_path_factory.mktemp("interop") / "a") as one:
        yield one


# -- any BCCN1 program


@pytest.mark.parametrize("language", ["c", "perl", "shell"])
def test_clients_and_peers_hear_each_other(tmp_path: Path, daemon: Daemon, peers: Peers, language: str) -> None:
    """That in C knows no check, the others share a key with the daemon."""
    integrity: dict[str, Any] = {"algorithm": "none"}
    options = []
    if language != "c":
        file = tmp_path / "hmac.key"
        file.write_bytes(KEY + b"\n")
        file.chmod(0o600)
        integrity, options = {"algorithm": "hmac", "keys": [str(file)]}, ["--key", str(file)]
    src = new_src()
    # No argument of a program can hold a NUL.
    sent = [BYTES.strip(b"\0") if language == "shell" else BYTES, b"", b"a|b:c]"]
    with in_force(daemon, integrity=integrity), daemon.connect("demo/") as client:
        since = Since(daemon)
        peers.report(language, daemon.port, src, 1, "demo/x", *sent, options=options)
        for seq, payload in enumerate(sent, start=1):
            assert message_of(client)[:5] == (src, seq, "demo/x", payload, "plain")
        assert since.verdicts() == {"accepted": len(sent)}
        if language == "shell":  # what it shows, another test holds
            return
        with peers.listen(language, daemon.port, *options) as listener:
            for payload in (bytes(range(256)), *sent[1:], b"last"):
                client.publish("demo-x/@1", payload)
            heard = listener.until(b" last\n")
            first = int(heard.split(b" ", 2)[1])
            name = client.identity().encode()
            published = [bytes(range(256)), *sent[1:], b"last"]
            lines = (b"%b %d demo-x/@1 %b\n" % (name, seq, payload) for seq, payload in enumerate(published, first))
            assert heard == b"".join(lines)


def test_perl_safe_names_reach_the_perl_reader(tmp_path: Path, peers: Peers) -> None:
    with Daemon(tmp_path / "a", {"host": "relay-01", "names": "perl-safe"}) as daemon, daemon.connect("") as client:
        with peers.listen("perl", daemon.port, "--habits") as perl:
            program = tmp_path / "card-sys+2"
            program.symlink_to(need("socat"))
            bus = f"UNIX-CONNECT:{daemon.bus},type=5"
            run(program, "-t", str(PATIENCE), "-", bus, stdin=b"MSG demo/x\0hello")
            assert re.fullmatch(rb"relay_01/card_sys_2/\d+ \d+ demo/x hello\n", perl.until(b"\n"))
        assert client.identity().startswith("relay_01/")
        assert payloads(client, 1) == [b"hello"]
        client.publish("log-1", b"")
        assert [(refusal.reason, refusal.key) for refusal in client.sync()] == [("not_perl_safe", "log-1")]


# -- signatures and OpenSSL


def test_openssl_and_the_daemon_verify_each_other(tmp_path: Path, daemon: Daemon, peers: Peers) -> None:
    src = new_src()
    private, public = openssl_keys(tmp_path / "relay02.pem")
    # A key that `bccn keygen` has made, whose public half is what openssl makes of it.
    own = tmp_path / "own"
    run(str(BIN / "bccn"), "keygen", "--algorithm", "sig", own)
    assert run("openssl", "pkey", "-in", own, "-pubout") == Path(f"{own}.pub").read_bytes()
    with (
        in_force(daemon, integrity=sig({"relay02": public}, own)),
        daemon.connect("demo/") as client,
        Wire(daemon.port) as wire,
    ):
        since = Since(daemon)
        # The own key verifies what other programs of this host sign.
        others = ("relay03/peer/7", private), ("relay01/peer/7", own), ("relay01/x/7", private)
        for name, key in ((src, private), *others):
            peers.report("shell", daemon.port, name, 1, "demo/x", name.encode(), options=["--sign", str(key)])
        assert payloads(client, 2) == [src.encode(), b"relay01/peer/7"]
        wait(lambda: since.verdicts() == {"accepted": 2, "integrity_failed": 1, "integrity_unknown": 1})
        client.publish("demo/y", bytes(range(256)))
        sent = wire.receive(b"demo/y")
        assert b"Verified Successfully" in run(*peers.shell, "verify", f"{own}.pub", stdin=sent)
        for wrong, data in ((public, sent), (Path(f"{own}.pub"), sent.replace(b"demo/y", b"demo/x"))):
            with pytest.raises(AssertionError, match=r"peer\.sh"):
                run(*peers.shell, "verify", wrong, stdin=data)


def sig(signers: dict[str, Path], private: Path) -> dict[str, Any]:
    """The section for signatures."""
    names = {prefix: [str(key)] for prefix, key in signers.items()}
    return {"algorithm": "sig", "keys": [str(private)], "signers": names}
