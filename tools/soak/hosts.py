"""The hosts of a soak, on loopback: one that is killed again and again, one beside it, one behind a link."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from tests.e2e.harness import KEY, Daemon
from tests.e2e.recorders import Recorder
from tests.e2e.shared import gateways
from tests.e2e.supervisor import Supervisor
from tests.support import free_port, wait
from tools.bench.programs import kib_of

#: seconds for a gateway to be there again: on a busy machine Python alone takes many, and pauses grow
PATIENCE: Final = 60.0
#: lines of logs that must not be there
_BUG: Final = re.compile(r"\bbug\b|Traceback|internal_error|left out of what|is lost$")
SETTINGS: Final[dict[str, Any]] = {
    "bus": {"queue": {"messages": 300}},
    # What a killed daemon was sent may lie in its socket for so long, and a gap may be so wide, as the link is away for
    # some thousand messages. The floods soon fill a table of so few sources.
    "dedup": {"horizon": "10s", "sanity": 32_768, "max_sources": 4_000},
    "repeat": [{"channels": "soak/l/", "copies": 2}],
    "heartbeat": {"interval": "2s"},
}


class Hosts:
    """All of them, up and joined; what ends, ends with `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.link = f"tcp://127.0.0.1:{free_port()}"
        self.tcp, self.udp = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        broker = {"tcp": self.tcp, "udp": self.udp, "state": str(folder / "ids")}
        recorder = {"journal": str(folder / "journal"), "rotate": 20, "host": "relay01"}
        self.relay = Supervisor(folder / "relay01", patience=PATIENCE)
        self.near = Daemon(folder / "relay02", start=False, patience=PATIENCE)
        self.far = Daemon(folder / "relay03", start=False, patience=PATIENCE)
        self.daemons: dict[str, Daemon] = {"relay01": self.relay, "relay02": self.near, "relay03": self.far}
        roles: dict[str, dict[str, Any]] = {
            "relay01": {"gateways": {"broker": broker, "nng": {"listen": [self.link]}}, "recorder": recorder},
            "relay02": {},
            "relay03": {"gateways": {"nng": {"dial": [self.link]}}},
        }
        with ExitStack() as stack:
            for name, daemon in self.daemons.items():
                stack.enter_context(daemon)
                port = self.relay.port if daemon is self.near else daemon.port
                segment = {**daemon.settings["segments"][0], "port": port, "receive_buffer": "64MiB"}
                own = {"host": name, "segments": [segment], "integrity": daemon.with_key(KEY)}
                daemon.configure({**SETTINGS, **roles[name], **own})
                daemon.start()
            self.wait_for_links()
            self.recorder = Recorder(self.relay)
            stack.callback(self._end_recorder)
            self._stack = stack.pop_all()

    def _end_recorder(self) -> None:
        with suppress(AssertionError, ProcessLookupError):
            self.recorder.stop()

    def wait_for_links(self) -> None:
        """Wait until there is a link between the two segments, and the broker is up."""

        def is_up() -> bool:
            assert not any(daemon.ended() for daemon in self.daemons.values()), "a daemon has ended"
            with suppress(OSError):
                peers = (daemon.metric("gateway_peers", gateway="nng") for daemon in (self.relay, self.far))
                return all(peers) and self.relay.metric("gateway_up", gateway="broker") >= 1
            return False

        wait(is_up, "the link and the broker", PATIENCE)

    def sizes(self) -> dict[str, float]:
        """Return what all processes take, and what is kept for the next daemon."""
        pids = {name: daemon.pid for name, daemon in self.daemons.items()}
        for daemon, gateway in ((self.relay, "nng"), (self.relay, "broker"), (self.far, "nng")):
            pids.update((f"{gateway} of {daemon.folder.name}", pid) for pid in gateways(daemon, gateway))
        if not self.recorder.ended():
            pids["recorder"] = self.recorder.pid
        kept = sum(os.fstat(fd).st_blocks * 512 for fds in list(self.relay.store.values()) for fd in fds)
        found = {"kept for the next daemon, MB": kept / 1e6}
        for name, pid in pids.items():
            with suppress(FileNotFoundError, ProcessLookupError):
                found[f"{name}: descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
                found[f"{name}: resident MB"] = kib_of(pid) * 1024 / 1e6
        for name, daemon in self.daemons.items():
            found |= {f"{name}: {size}": daemon.metric(size) for size in ("sources", "clients", "subscriptions")}
            found[f"{name}: queue MB"] = daemon.metric("queue_bytes") / 1e6
        return found

    def bugs(self) -> list[str]:
        """Return lines of logs that must not be there."""
        logs = [*(daemon.log for daemon in self.daemons.values()), self.recorder.log]
        return [
            f"{path.parent.name}/{path.name}: {line}"
            for path in logs
            for line in path.read_text(errors="replace").splitlines()
            if _BUG.search(line)
        ]

    def close(self) -> None:
        self._stack.close()
