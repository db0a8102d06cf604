"""The hosts of a soak, on loopback: one that is killed again and again, one beside it, one behind a link."""

from __future__ import annotations

import re
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from tests.e2e.harness import KEY, Daemon
from tests.e2e.recorders import Recorder
from tests.e2e.shared import gateways
from tests.e2e.supervisor import Supervisor
from tests.support import BROADCAST, free_port, wait

#: messages in the queue of a client
QUEUE: Final = 300
#: seconds for a gateway to be there again: on a busy machine Python alone takes many, and pauses grow
PATIENCE: Final = 60.0
#: lines of logs that must not be there
_BUG: Final = re.compile(r"\bbug\b|Traceback|internal_error|left out of what|is lost$")


def settings(host: str, folder: Path, port: int, **more: Any) -> dict[str, Any]:
    return {
        "host": host,
        "segments": [{"address": BROADCAST, "port": port, "receive_buffer": "64MiB"}],
        "bus": {"path": str(folder / "bus.sock"), "queue": {"messages": QUEUE}},
        # What a killed daemon was sent may lie in its socket for so long, and a gap may be so wide, as the link is away
        # for some thousand messages. The floods soon fill a table of so few sources.
        "dedup": {"horizon": "10s", "sanity": 32_768, "max_sources": 4_000},
        "repeat": [{"channels": "soak/l/", "copies": 2}],
        "heartbeat": {"interval": "2s"},
        **more,
    }


class Hosts:
    """All of them, up and joined; what ends, ends with `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        with ExitStack() as stack:
            self._build(stack)
            self._stack = stack.pop_all()

    def _build(self, stack: ExitStack) -> None:
        self.link = f"tcp://127.0.0.1:{free_port()}"
        self.tcp, self.udp = free_port(), free_port()
        broker = {"tcp": f"127.0.0.1:{self.tcp}", "udp": f"127.0.0.1:{self.udp}", "state": str(self.folder / "ids")}
        links = {"broker": broker, "nng": {"listen": [self.link]}}
        recorder = {"journal": str(self.folder / "journal"), "rotate": 20, "host": "relay01"}
        self.relay = Supervisor(self.folder / "relay01", patience=PATIENCE)
        stack.enter_context(self.relay)
        self.port = self.relay.port
        self._start(self.relay, settings("relay01", self.relay.folder, self.port, gateways=links, recorder=recorder))
        self.near = Daemon(self.folder / "relay02", start=False, patience=PATIENCE)
        self.far = Daemon(self.folder / "relay03", start=False, patience=PATIENCE)
        for daemon, name, port, more in (
            (self.near, "relay02", self.port, {}),
            (self.far, "relay03", free_port(), {"gateways": {"nng": {"dial": [self.link]}}}),
        ):
            stack.enter_context(daemon)
            self._start(daemon, settings(name, daemon.folder, port, **more))
        self.daemons: dict[str, Daemon] = {"relay01": self.relay, "relay02": self.near, "relay03": self.far}
        self.wait_for_links()
        self.recorder = Recorder(self.relay)
        stack.callback(self._end_recorder)

    @staticmethod
    def _start(daemon: Daemon, configuration: dict[str, Any]) -> None:
        daemon.configure({**configuration, "integrity": daemon.with_key(KEY)})
        daemon.start()

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

    def processes(self) -> dict[str, int]:
        """Return what is measured, by name."""
        found = {name: daemon.pid for name, daemon in self.daemons.items()}
        for daemon, gateway in ((self.relay, "nng"), (self.relay, "broker"), (self.far, "nng")):
            found.update((f"{gateway} of {daemon.folder.name}", pid) for pid in gateways(daemon, gateway))
        if self.recorder.process is not None and not self.recorder.ended():
            found["recorder"] = self.recorder.process.pid
        return found

    def bugs(self) -> list[str]:
        """Return lines of logs that must not be there."""
        logs = [*(daemon.log for daemon in self.daemons.values()), self.recorder.log]
        return [
            f"{path.parent.name}/{path.name}: {line}"
            for path in logs
            if path.exists()
            for line in path.read_text(errors="replace").splitlines()
            if _BUG.search(line)
        ]

    def close(self) -> None:
        self._stack.close()
