"""The hosts of a soak, on loopback: one that is killed again and again, one beside it, one behind a link."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests import support
from tests.e2e.harness import KEY, Daemon
from tests.e2e.recorders import Recorder
from tests.e2e.shared import gateways
from tests.e2e.supervisor import Supervisor
from tests.support import BROADCAST, free_port

#: sources, so few that the floods fill the table soon
MAX_SOURCES: Final = 4_000
#: clients of a host, so few that a flood of connections is refused
MAX_CLIENTS: Final = 100
#: messages in the queue of a client
QUEUE: Final = 300
#: seqs that a gap may be wide and still be one: the link is away for some thousand messages
SANITY: Final = 32_768
#: seconds for a gateway to be there again: on a busy machine Python alone takes many, and pauses grow
PATIENCE: Final = 60.0
#: seconds for which what a killed daemon was sent may lie in its socket and still go on over the link
HORIZON: Final = "10s"


def settings(host: str, folder: Path, port: int, **more: Any) -> dict[str, Any]:
    return {
        "host": host,
        "segments": [{"address": BROADCAST, "port": port, "receive_buffer": "64MiB"}],
        "bus": {
            "path": str(folder / "bus.sock"),
            "max_clients": MAX_CLIENTS,
            "queue": {"messages": QUEUE},
            "user": {"clients": MAX_CLIENTS - 10},
        },
        "dedup": {"horizon": HORIZON, "sanity": SANITY, "max_sources": MAX_SOURCES},
        "repeat": [{"channels": "soak/l/", "copies": 2}],
        "heartbeat": {"interval": "2s"},
        **more,
    }


class Stage:
    """All of it, up and joined; what ends, ends with `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise

    def _build(self) -> None:
        self.link = f"tcp://127.0.0.1:{free_port()}"
        self.tcp, self.udp = free_port(), free_port()
        broker = {"tcp": f"127.0.0.1:{self.tcp}", "udp": f"127.0.0.1:{self.udp}", "state": str(self.folder / "ids")}
        recorder = {"journal": str(self.folder / "journal"), "rotate": 20, "host": "relay01"}
        self.relay = Supervisor(self.folder / "relay01", patience=PATIENCE)
        self._stack.enter_context(self.relay)
        # A port that nobody holds while the daemon is down may be somebody else's when it comes back.
        self.relay.bind("metrics")
        self.port = self.relay.port
        self.udp_socket = dict(self.relay.passed)["udp"]
        self.relay.configure(
            settings(
                *("relay01", self.relay.folder, self.port),
                gateways={"broker": broker, "nng": {"listen": [self.link]}},
                recorder=recorder,
                integrity=self.relay.with_key(KEY),
            )
        )
        self.relay.start()
        self.near = self._host("relay02", self.port)
        self.far = self._host("relay03", free_port(), gateways={"nng": {"dial": [self.link]}})
        self.linked()
        self.recorder = Recorder(self.relay)
        self._stack.callback(self._end_recorder)

    def _host(self, name: str, port: int, **more: Any) -> Daemon:
        folder = self.folder / name
        daemon = Daemon(folder, start=False, patience=PATIENCE)
        daemon.configure({**settings(name, folder, port, **more), "integrity": daemon.with_key(KEY)})
        daemon.start()
        return self._stack.enter_context(daemon)

    def _end_recorder(self) -> None:
        with suppress(AssertionError, ProcessLookupError):
            self.recorder.stop()

    @property
    def daemons(self) -> dict[str, Daemon]:
        return {"relay01": self.relay, "relay02": self.near, "relay03": self.far}

    def linked(self) -> None:
        """Wait until there is a link between the two segments, and the broker is up."""
        up = (self.relay, "gateway_up", "broker")
        for daemon, metric, gateway in ((self.relay, "gateway_peers", "nng"), (self.far, "gateway_peers", "nng"), up):
            what = f"{gateway} of {daemon.folder.name} ({metric})"
            support.wait(partial(self._has, daemon, metric, gateway), what, PATIENCE)

    @staticmethod
    def _has(daemon: Daemon, metric: str, gateway: str) -> bool:
        with suppress(OSError):
            return daemon.metric(metric, gateway=gateway) >= 1
        assert not daemon.ended(), f"{daemon.folder.name} has ended:\n{daemon.output()[-2000:]}"
        return False

    def processes(self) -> dict[str, int]:
        """What is measured, by name."""
        found = {name: daemon.process.pid for name, daemon in self.daemons.items() if daemon.process is not None}
        links = ("link of relay03", self.far, "nng"), ("link of relay01", self.relay, "nng")
        for name, daemon, gateway in (*links, ("broker", self.relay, "broker")):
            found.update((name, pid) for pid in gateways(daemon, gateway))
        if self.recorder.process is not None and not self.recorder.ended():
            found["recorder"] = self.recorder.process.pid
        return found

    def kept(self) -> int:
        """Bytes of the files in memory that outlive the daemon."""
        return sum(os.fstat(fd).st_blocks * 512 for fds in list(self.relay.store.values()) for fd in fds)

    def bugs(self) -> list[str]:
        """Lines of logs that must not be there."""
        logs = [*(daemon.log for daemon in self.daemons.values()), self.recorder.log]
        pattern = re.compile(r"\bbug\b|Traceback|internal_error|left out of what|is lost$")
        return [
            f"{path.parent.name}/{path.name}: {line}"
            for path in logs
            if path.exists()
            for line in path.read_text(errors="replace").splitlines()
            if pattern.search(line)
        ]

    def close(self) -> None:
        self._stack.close()
