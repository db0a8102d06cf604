"""Keys are changed while everything runs: no client is dropped, no datagram is lost, none comes twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from bccnd.core.trust.integrity_algorithms import fingerprint
from tests.e2e.harness import KEY, Daemon, Stream, Wire, datagram, payloads, wait

OLD, NEW = KEY, b"the key of the time to come"
SRC = "host-c/plain/7"


def by_hmac(key: bytes) -> Callable[[int], bytes]:
    return lambda seq: datagram(SRC, seq, "x/y", b"%d" % seq, key)


def test_a_key_rotation_under_load_loses_and_repeats_nothing(tmp_path: Path) -> None:
    # A test machine may hold it up for a moment without anything being lost for want of room.
    daemon = Daemon(tmp_path / "a", {"bus": {"queue": {"messages": 200_000, "bytes": "256MiB"}}}, start=False)
    daemon.settings["segments"][0]["receive_buffer"] = "16MiB"
    for name, secret in (("old", OLD), ("new", NEW)):
        (daemon.folder / name).write_bytes(secret)
        (daemon.folder / name).chmod(0o600)
    old, new = by_hmac(OLD), by_hmac(NEW)

    def section(*names: str) -> dict[str, object]:
        return {"algorithm": "hmac", "keys": list(names), "required": True}

    daemon.configure({"integrity": section("old")})
    daemon.start()
    with daemon, daemon.connect("x/") as client, Stream(daemon.port, 10_000, old) as stream:
        stream.go_on(0.3)
        for names in (("old", "new"), ("new", "old"), ("new",)):
            daemon.configure({"integrity": section(*names)})
            daemon.reload()
            stream.sign = new  # once all verify it, senders sign with it
            stream.go_on(0.3)
        stream.close()
        sent = len(stream.sent)
        assert payloads(client, sent) == [b"%d" % number for number in range(1, sent + 1)]
        assert client.lost == 0
        assert daemon.verdicts() == {"accepted": sent}
        assert daemon.metric("socket_drops_total") == 0
        assert daemon.metric("config_reloads_total", result="applied") == 3
        (key,) = map(json.loads, daemon.tool("keys", "--json").stdout.splitlines())
        assert (key["fingerprint"], key["signs"], key["sources"]) == (fingerprint(NEW), True, [SRC])
        with Wire(daemon.port) as wire:
            # Ours are signed with the new key and known as ours; what is signed with the old one is refused.
            client.publish("x/y", b"mine")
            ours = wire.receive(b"|mine")
            wait(lambda: daemon.verdicts().get("looped") == 1)
            src, seq, _ = ours.partition(b"]")[2].decode().split(":", 2)
            assert ours == datagram(src, int(seq), "x/y", b"mine", NEW)
            wire.send(old(sent + 1))
            wait(lambda: daemon.verdicts().get("integrity_failed") == 1)
