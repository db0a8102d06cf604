"""Keys are changed while everything runs: no client is dropped, no datagram is lost, none comes twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

import bccnd
from tests.e2e.harness import KEY, Daemon, Wire, datagram, payloads, wait

OLD, NEW = KEY, b"the key of the time to come"
SRC = "host-c/plain/7"
Seal = Callable[[str, int, str, bytes], bytes]


def by_hmac(key: bytes) -> Seal:
    return lambda src, seq, chan, payload: datagram(src, seq, chan, payload, key)


def by_signature(pem: bytes) -> Seal:
    key = load_pem_private_key(pem, password=None)
    assert isinstance(key, Ed25519PrivateKey)

    def seal(src: str, seq: int, chan: str, payload: bytes) -> bytes:
        body = f"{src}:{seq}:{chan}|".encode() + payload
        return b"BCCN1[%d:sig=%b]%b" % (len(body), key.sign(body).hex().encode(), body)

    return seal


def make_pairs(daemon: Daemon, *names: str) -> dict[str, bytes]:
    """Key pairs in the daemon's folder, made by the tool; the private keys by name."""
    for name in names:
        assert daemon.tool("keygen", "--algorithm", "sig", str(daemon.folder / name)).returncode == 0
    return {name: (daemon.folder / name).read_bytes() for name in names}


class Stream:
    """A sender that keeps to a rate, and whose key can be changed at any moment."""

    def __init__(self, port: int, rate: int, seal: Seal) -> None:
        self.seal = seal
        self.sent = 0
        self._port = port
        self._rate = rate
        self._over = False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        start = time.monotonic()
        with Wire(self._port) as wire:
            while not self._over:
                for _ in range(int((time.monotonic() - start) * self._rate) - self.sent):
                    self.sent += 1
                    wire.send(self.seal(SRC, self.sent, "x/y", b"%d" % self.sent))
                time.sleep(0.002)

    def go_on(self, seconds: float) -> None:
        """Let it send for a while."""
        aim = self.sent + int(self._rate * seconds)
        wait(lambda: self.sent >= aim, "the sender")

    @contextmanager
    def running(self) -> Iterator[Stream]:
        self._thread.start()
        try:
            yield self
        finally:
            self.stop()
            self._thread.join()

    def stop(self) -> None:
        self._over = True


class Reader:
    """A client that keeps what it gets, in a thread of its own."""

    def __init__(self, client: bccnd.Connection) -> None:
        self.got: list[bytes] = []
        self.lost = 0
        self._client = client
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            self.got += payloads(self._client, 1000, 0.2)
            self.lost = self._client.lost

    def stop(self) -> None:
        self._over = True
        self._thread.join()


def roomy(folder: Path) -> Daemon:
    """A daemon that a test machine may hold up for a moment without anything being lost for want of room."""
    daemon = Daemon(folder, {"bus": {"queue": {"messages": 200_000, "bytes": "256MiB"}}}, start=False)
    daemon.settings["segments"][0]["receive_buffer"] = "16MiB"
    return daemon


def test_a_key_rotation_at_10_000_datagrams_a_second_loses_and_repeats_nothing(tmp_path: Path) -> None:
    daemon = roomy(tmp_path / "a")
    daemon.configure({"integrity": daemon.with_key(OLD)})
    daemon.start()
    stream = Stream(daemon.port, 10_000, by_hmac(OLD))
    with daemon, daemon.connect("x/") as client, stream.running():
        reader = Reader(client)
        stream.go_on(0.3)
        for keys, sealed in [
            ((OLD, NEW), by_hmac(NEW)),  # all verify the new one, then senders sign with it
            ((NEW, OLD), by_hmac(NEW)),
            ((NEW,), by_hmac(NEW)),
        ]:
            daemon.configure({"integrity": daemon.with_key(*keys)})
            daemon.reload()
            stream.seal = sealed
            stream.go_on(0.3)
        stream.stop()
        wait(lambda: len(reader.got) >= stream.sent, "the last message")
        reader.stop()
        assert reader.got == [b"%d" % number for number in range(1, stream.sent + 1)]
        assert reader.lost == 0
        assert daemon.verdicts() == {"accepted": stream.sent}
        assert daemon.metric("socket_drops_total") == 0
        assert daemon.metric("config_reloads_total", result="applied") == 3
        # What is signed with the old key has had its time.
        with Wire(daemon.port) as wire:
            wire.send(by_hmac(OLD)(SRC, stream.sent + 1, "x/y", b"retired"))
            wait(lambda: daemon.verdicts().get("integrity_failed") == 1)


def test_a_rotation_of_signatures_loses_nothing_either(tmp_path: Path) -> None:
    daemon = roomy(tmp_path / "a")
    keys = make_pairs(daemon, "own", "old", "new")

    def signers(*names: str) -> dict[str, object]:
        return {"algorithm": "sig", "keys": ["own"], "signers": {"host-c": [f"{name}.pub" for name in names]}}

    daemon.configure({"integrity": signers("old")})
    daemon.start()
    stream = Stream(daemon.port, 500, by_signature(keys["old"]))
    with daemon, daemon.connect("x/") as client, stream.running():
        reader = Reader(client)
        stream.go_on(0.2)
        for names in [("old", "new"), ("new",)]:
            daemon.configure({"integrity": signers(*names)})
            daemon.reload()
            stream.seal = by_signature(keys["new"])
            stream.go_on(0.3)
        stream.stop()
        wait(lambda: len(reader.got) >= stream.sent, "the last message")
        reader.stop()
        assert reader.got == [b"%d" % number for number in range(1, stream.sent + 1)]
        assert daemon.verdicts() == {"accepted": stream.sent}
        # Ours are signed, and known as ours when they come back.
        client.publish("x/z", b"ours")
        assert client.sync() == []
        wait(lambda: daemon.verdicts().get("looped") == 1)


def same(raw: bytes) -> bytes:
    return raw


REFUSED = {
    "signed with a retired key": ("retired", SRC, same, "integrity_failed"),
    "signed for another's src": ("c", "host-d/p/1", same, "integrity_failed"),
    "of a source without a key": ("c", "host-e/p/1", same, "integrity_unknown"),
    "of a program with a key of its own": ("c", "host-c/own/1", same, "integrity_failed"),
    "tampered with": ("c", SRC, lambda raw: raw[:-1] + b"z", "integrity_failed"),
    "truncated": ("c", SRC, lambda raw: raw[:-1], "length_mismatch"),
    "unsigned": ("c", SRC, lambda _: datagram(SRC, 1, "x", b"y"), "integrity_missing"),
    "signed by hmac": ("c", SRC, lambda _: datagram(SRC, 1, "x", b"y", KEY), "integrity_unknown"),
}


@pytest.mark.parametrize(("key", "src", "change", "verdict"), REFUSED.values(), ids=REFUSED)
def test_signatures_let_nothing_else_in(
    tmp_path: Path, key: str, src: str, change: Callable[[bytes], bytes], verdict: str
) -> None:
    daemon = Daemon(tmp_path / "a", start=False)
    keys = make_pairs(daemon, "c", "d", "own", "retired")
    speak = {"host-c": ["c.pub"], "host-d": ["d.pub"], "host-c/own": ["own.pub"]}
    daemon.configure({"integrity": {"algorithm": "sig", "signers": speak}})
    daemon.start()
    with daemon, daemon.connect("") as client, Wire(daemon.port) as wire:
        wire.send(change(by_signature(keys[key])(src, 1, "x", b"y")))
        wait(lambda: daemon.verdicts() == {verdict: 1})
        wire.send(by_signature(keys["c"])(SRC, 1, "x", b"good"))
        assert payloads(client, 1) == [b"good"]
        # A host without a private key listens, and says so to who wants to speak.
        client.publish("x", b"mine")
        assert [refusal.reason for refusal in client.sync()] == ["no_signing_key"]


def test_a_replay_of_a_signed_datagram_is_refused_where_numbers_only_rise(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", start=False)
    rules = {"freshness": "monotonic", "horizon": "100ms"}
    daemon.configure({"integrity": daemon.with_key(KEY), "dedup": rules})
    daemon.start()
    with daemon, daemon.connect("x") as client, Wire(daemon.port) as wire:
        captured = datagram(SRC, 5000, "x", b"open the door", KEY)
        wire.send(captured, captured)
        wait(lambda: daemon.verdicts() == {"accepted": 1, "duplicate": 1})
        wire.send(datagram(SRC, 9000, "x", b"close the door", KEY))
        assert payloads(client, 2) == [b"open the door", b"close the door"]
        wire.send(captured)
        wait(lambda: daemon.verdicts().get("replayed") == 1)
        assert payloads(client, 1, 0.2) == []
