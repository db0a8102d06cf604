"""`bccn trace --live` of messages that are delivered, lost, refused, dropped and waiting."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bccnd.core.observe import observe
from bccnd.journal import files, layout
from tests.e2e.harness import KEY, PATIENCE, Daemon, Wire, datagram, payloads, wait

SRC = "host-c/plain/7"


class Traced:
    """A trace in another process; `begun` is what it knew at first."""

    def __init__(self, daemon: Daemon, *words: str) -> None:
        command = daemon.tool_command("trace", "--live", "--json", *words)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()
        self.begun: dict[str, Any] = json.loads(line)
        self.end: dict[str, Any] = {}

    def events(self) -> list[dict[str, Any]]:
        """All that it has seen, once it has ended by itself."""
        out, said = self.process.communicate(timeout=2 * PATIENCE)
        assert said == b""
        *found, self.end = map(json.loads, out.splitlines())
        assert self.end["kind"] == "end"
        there = self.end["seen"] or self.end.get("known", {}).get("state") in ("heard", "ours")
        assert self.process.returncode == (0 if there else 1)
        return found


def known(daemon: Daemon, wanted: str) -> Traced:
    """What is known of a message that is not worth waiting for."""
    trace = Traced(daemon, wanted)
    assert trace.events() == []
    return trace


@contextmanager
def traced(daemon: Daemon, *words: str) -> Iterator[Traced]:
    trace = Traced(daemon, *words)
    try:
        yield trace
    finally:
        trace.process.kill()
        trace.process.communicate()


def test_a_message_that_was_lost_on_the_way_and_one_with_a_wrong_key(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "a", {"dedup": {"horizon": "300ms"}}, start=False)
    daemon.configure({"integrity": daemon.with_key(KEY)})
    daemon.start()
    messages = [datagram(SRC, seq, "x", b"", KEY) for seq in range(8)]
    with daemon, daemon.connect("x") as client, Wire(daemon.port) as wire:
        wire.send(messages[2], messages[3], messages[5])
        assert payloads(client, 3) == [b""] * 3
        wait(lambda: daemon.metric("messages_lost_total") == 1)

        lost = known(daemon, f"{SRC}:4")
        assert (lost.begun["known"]["state"], lost.process.returncode) == ("lost", 1)
        assert lost.begun["neighbours"] == {"3": "heard", "5": "heard"}
        assert known(daemon, f"{SRC}:1").begun["known"]["state"] == "before"

        # It may come all the same: so long behind the others, it is taken for a new beginning.
        with traced(daemon, f"{SRC}:4", "--wait", "10s") as trace:
            wire.send(messages[4])
            (late,) = trace.events()
        assert (late["verdict"], late["receivers"][0]["fate"]) == ("restart", "sent")
        assert "lost" in late["before"]

        with traced(daemon, f"{SRC}:7") as trace:
            assert trace.begun["known"]["state"] == "ahead"
            wire.send(datagram(SRC, 7, "x", b"", b"another key of 32 bytes, as it is"))
            (refused,) = trace.events()
        assert (refused["verdict"], refused["receivers"]) == ("integrity_failed", [])
        assert (refused["stages"][-1]["stage"], refused["stages"][-1]["passed"]) == ("check", False)
        assert trace.end["known"]["state"] == "ahead"


def test_a_message_that_stays_on_this_host_and_one_that_nobody_sends(tmp_path: Path) -> None:
    with Daemon(tmp_path / "a") as daemon, daemon.connect() as speaker, daemon.connect("x") as listener:
        speaker.local(True)
        with traced(daemon, f"{speaker.identity()}:*") as trace:
            speaker.publish("x", b"")
            (published,) = trace.events()
        assert (published["kind"], published["local"], published["sent_on"]) == ("published", True, [])
        assert published["seq"] == 0
        assert [one["identity"] for one in published["receivers"]] == [listener.identity()]

        with traced(daemon, f"{SRC}:1", "--wait", "200ms") as trace:
            assert trace.begun["known"]["state"] == "unknown"
            assert trace.events() == []
        assert trace.process.returncode == 1

        for words in (["--live", "a:b:x"], ["--live"], ["--seq", "1", "x"], ["--live", "a:1", "--wait", "never"]):
            done = daemon.tool("trace", *words)
            assert (done.returncode, done.stdout) == (2, b""), words
        assert daemon.tool("trace", "--live", "?:1").returncode == 1


@pytest.mark.slow
def test_it_is_shown_for_people_with_what_a_journal_has_of_it(tmp_path: Path) -> None:
    raw = datagram(SRC, 2, "demo/t1", b"21.5")
    rows = [observe("accepted", "lan", 1, 1_700_000_000_000_000_000, "10.0.0.7:5400", raw)]
    filesystem, root = files.open_root(str(tmp_path / "journal"))
    path = layout.ObsFile("relay01", "2023-11-14", "20231114T000000Z-00000000", 0).path
    files.write(filesystem, root, path, files.obs_table("relay01", "20231114T000000Z-00000000", 0, rows))
    patient = {"dedup": {"horizon": "60s"}}
    with Daemon(tmp_path / "a", patient) as daemon, Wire(daemon.port) as wire, daemon.connect("demo/") as client:
        wire.send(datagram(SRC, 1, "demo/t1", b""), datagram(SRC, 3, "demo/t1", b""))
        assert payloads(client, 2) == [b"", b""]
        with daemon.tool_running("trace", "--live", f"{SRC}:2", "--journal", str(tmp_path / "journal")) as trace:
            assert trace.stdout is not None
            head = [trace.stdout.readline().decode() for _ in range(4)]
            wire.send(raw)
            said = trace.stdout.read().decode()
            assert trace.wait(PATIENCE) == 0
        assert SRC in head[0]
        assert [line.split(":")[0].strip() for line in head[2:]] == ["seq 1", "seq 3"]
        assert f"{SRC}:2 (demo/t1, " in said
        assert "dedup: stale: the last seq was 3, in epoch 1" in said
        assert "relay01 on lan from 10.0.0.7:5400: accepted\n" in said
