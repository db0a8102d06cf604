"""Reports at rest: a reload that takes the signing key away, a host that lies, and one whose clock was set back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bccnd.fleet.report_format import CHANNEL, HeardHost, SentRun, head_line, heard_line, sent_line
from tools.simulate import datagrams, fleet
from tools.simulate.host import Host
from tools.simulate.operators import Operators
from tools.simulate.violation import Violation
from tools.simulate.world import World

#: seconds between two reports
_INTERVAL: Final = 1.0
#: numbers of a source that a lie claims
_LIE: Final = 1_500_000
#: seconds until what a report claims would be counted as lost
_COUNTED: Final = 3.0
_PAGES: Final = ("/fleet.json", "/fleet-table.json")


class Reporting:
    """Checks the reports of a fleet at rest."""

    def __init__(self, world: World, operators: Operators) -> None:
        self._world = world
        self._operators = operators
        #: the seq of the next report of the host whose clock is set back each time
        self._seq = 1_000_000

    def check(self) -> None:
        for host in self._world.hosts:
            self._lose_key(host)
        for host in self._world.hosts:
            self._lie(host)
        self._set_back()
        for host in self._world.hosts:
            for page in _PAGES:
                if "findings" not in json.loads(self._operators.fetch(host, page) or "{}"):
                    raise Violation(f"{host.name}: {page} does not answer")

    def _lose_key(self, host: Host) -> None:
        """Reload a host that reports without a key to sign with: all of it is in force, or nothing."""
        before = host.settings
        reports = {**before.get("reports", {}), "interval": _INTERVAL}
        if not self._reload(host, {**before, "reports": reports}):
            raise Violation(f"{host.name} refuses to report: {host.serving.refused}")
        self._world.run(2 * _INTERVAL)
        if not host.serving.reports.sent:
            raise Violation(f"{host.name} does not report")
        algorithm = host.serving.ingress.checker.algorithm
        integrity = {"algorithm": "sig", "signers": {"far": [str(_public_key(host.folder))]}}
        applied = self._reload(host, {**before, "reports": reports, "integrity": integrity})
        if applied is bool(before["heartbeat"]["interval"]):
            raise Violation(
                f"{host.name}: without a key, heartbeats {'are' if applied else 'would be no'} reason to refuse"
            )
        found = host.serving.ingress.checker.algorithm
        if found != ("sig" if applied else algorithm):
            raise Violation(f"{host.name} has applied a part of a reload: it checks by {found}")
        if not self._reload(host, before):
            raise Violation(f"{host.name} refuses what it had: {host.serving.refused}")

    def _reload(self, host: Host, settings: dict[str, Any]) -> bool:
        """Reload at this moment, and return whether it was applied."""
        host.configure(settings)
        before = dict(host.serving.config_reloads)
        host.hang_up()
        self._world.settle()
        after = host.serving.config_reloads
        if sum(after.values()) != sum(before.values()) + 1:
            raise Violation(f"{host.name} has not reloaded")
        return after["applied"] > before["applied"]

    def _lie(self, host: Host) -> None:
        """A host tells the numbers of a source of another one: no loss is counted."""
        sources = host.serving.sources
        victim = next(iter(sources.latest(1)), None)
        if victim is None:
            return
        src, by_src = bytes(victim.src), sources.losses.by_src
        before = by_src.get(src, 0)
        self._tell(host, "liar", self._seq, sent_line(SentRun(src.decode(), victim.first, victim.last + 1 + _LIE)))
        self._world.run(_COUNTED)
        if by_src.get(src, 0) >= before + _LIE:
            raise Violation(f"{host.name} believes what another host says about {src!r}")

    def _set_back(self) -> None:
        """A host reports whose daemon has the pid of the one before, and an earlier clock."""
        world, rng = self._world, self._world.rng
        self._seq -= rng.randrange(1, 1000)
        names = [f"far{number}" for number in range(6)]
        for host in world.hosts:
            told = rng.sample(names, 3)
            lines = [heard_line(HeardHost(name, self._seq, rng.randrange(100), 1, 0, 0)) for name in told]
            now = world.now
            self._tell(host, "reset", self._seq, b"".join(lines))
            world.run(0.1)
            row = host.serving.reports.matrix.get("reset")
            if row is None or row.heard < now:
                raise Violation(f"{host.name} does not believe a new daemon whose clock was set back")

    def _tell(self, host: Host, name: str, seq: int, lines: bytes) -> None:
        """Send a report of another machine to a host."""
        world = self._world
        world.note(f"{name} reports to {host.name}")
        text = head_line("1.0", round(1000 * _INTERVAL), 1, 1) + lines
        key = fleet.KEY if "integrity" in host.settings else b""
        datagram = datagrams.make(f"{name}/bccnd/1".encode(), seq, CHANNEL + name.encode(), text, key)
        world.network.deliver(host.name, datagram)


def _public_key(folder: Path) -> Path:
    """Return the file with a public key, which nothing is signed with."""
    path = folder / "far.pub"
    key = Ed25519PrivateKey.from_private_bytes(fleet.KEY).public_key()
    path.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    path.chmod(0o644)
    return path
