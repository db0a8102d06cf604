"""A whole host: a network namespace, and in it a container that systemd has booted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from systemd.journal import Reader

from tests import support
from tests.prometheus import metric
from tests.systemd.stage import PREFIX, CannotBoot, Layer, cgroups, remove_cgroup

#: for one command on a host; generous, because it only matters when something is broken
PATIENCE: Final = 60.0
PORT: Final = 5400
_ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_GET: Final = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read().decode())"
#: takes the power from a host when its input ends
_GUARD: Final = "read -r x; kill -KILL $(cat /proc/$1/task/$1/children); sleep 1; kill -KILL $1"


def wait(done: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait until ``done()`` is true; a whole host takes longer than a program."""
    support.wait(done, what, patience)


class Host:
    """One host of a run. ``network`` is the name of its network namespace, ``name`` a letter."""

    def __init__(self, layer: Layer, name: str, network: str) -> None:
        self.layer = layer
        self.name = name
        self.network = network
        self.machine = f"{PREFIX}{os.getpid()}-{name}"
        self.leader = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._log = layer.folder / "console"

    # ---- its life

    def boot(self) -> None:
        """Boot, and wait until all units that are started at boot have started (or failed)."""
        self.launch()
        wait(lambda: self.path("/run/systemd/private").exists(), "systemd to serve", PATIENCE)
        state = self.run("systemctl", "is-system-running", "--wait", check=False).strip()
        assert state in ("running", "degraded"), f"{state}\n{self.console()}"

    def launch(self) -> None:
        """Boot, and wait until there is a first process."""
        folders = [one / self.machine for one in cgroups()]
        enter = ""
        for folder in folders:
            folder.mkdir(exist_ok=True)
            enter += f"echo $$ > {folder}/cgroup.procs && "
        nspawn = [
            *("systemd-nspawn", "-q", "-D", str(self.layer.root), "-M", self.machine, f"--hostname=host-{self.name}"),
            *("--register=no", "--keep-unit", "--console=pipe", "--link-journal=no", "--resolv-conf=off"),
            *("--timezone=off", "--capability=CAP_NET_ADMIN"),
            *(f"--network-namespace-path=/run/netns/{self.network}", "-b"),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", f'{enter}exec "$@"', "sh", *nspawn],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_ENVIRONMENT, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                start_new_session=True,
            )
        # If this process is killed, the pipe ends; a container would outlive even its systemd-nspawn.
        self._guard = subprocess.Popen(["sh", "-c", _GUARD, "sh", str(self._process.pid)], stdin=subprocess.PIPE)
        wait(self._led, "systemd-nspawn to start a first process", PATIENCE)

    def _led(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise CannotBoot(f"systemd-nspawn ended with status {self._process.returncode}: {self.console()}")
        for pid in children(self._process.pid):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "systemd":
                    self.leader = pid
        return self.leader != 0

    def console(self) -> str:
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""

    def power_off(self) -> None:
        """As an operator would: units are stopped, disks written."""
        assert self._process is not None
        os.kill(self.leader, signal.SIGRTMIN + 4)
        self._process.wait(PATIENCE)
        self.close()

    def close(self) -> None:
        """Take the power away."""
        if self._process is not None:
            if self._process.poll() is None:
                with suppress(ProcessLookupError):
                    if self.leader:
                        os.kill(self.leader, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(5)
                self._process.kill()
                self._process.wait(PATIENCE)
            self._process = None
            self.leader = 0
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        for tree in cgroups():
            folder = tree / self.machine
            if folder.exists():
                wait(lambda folder=folder: _removed(folder), f"{folder} to be empty", 5)  # type: ignore[misc]

    # ---- commands and files

    def inside(self, *words: str) -> list[str]:
        """What runs a command on this host."""
        return ["nsenter", "-t", str(self.leader), "-a", "--", *words]

    def run(self, *words: str, check: bool = True, stdin: str = "", timeout: float = PATIENCE) -> str:
        """Run a command; what it says on both its outputs."""
        done = self._done(words, stdin, timeout)
        assert not check or done.returncode == 0, f"{' '.join(words)}: status {done.returncode}\n{done.stdout}"
        return done.stdout

    def status(self, *words: str) -> int:
        """Run a command; its exit status."""
        return self._done(words).returncode

    def _done(
        self, words: Sequence[str], stdin: str = "", timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.inside(*words),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
            env=_ENVIRONMENT,
        )

    def path(self, path: str) -> Path:
        """A file of this host, seen from outside; before it is booted as well."""
        return Path(f"/proc/{self.leader}/root{path}") if self.leader else self.layer.root / path.lstrip("/")

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        file = self.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        file.chmod(mode)

    # ---- the service

    def show(self, what: str, unit: str = "bccnd.service") -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "-P", what, unit).strip()

    def main_pid(self) -> int:
        """The daemon's pid as the host sees it; 0 while there is none."""
        return int(self.show("MainPID"))

    def wait_active(self, what: str = "the service to be active") -> None:
        wait(lambda: self.show("ActiveState") == "active", what, 20)

    def kill(self, name: str) -> None:
        """Send the daemon alone a signal by its name."""
        self.run("systemctl", "kill", "--kill-who=main", "-s", name, "bccnd.service")

    def reload(self) -> None:
        self.run("systemctl", "reload", "bccnd.service")

    def journal(self, unit: str = "bccnd.service", **fields: str) -> list[dict[str, Any]]:
        """The entries in the log of a unit, and of systemd about it, that have these fields."""
        self.run("journalctl", "--sync")
        with Reader(path=str(self.path("/var/log/journal"))) as reader:
            reader.add_match(_SYSTEMD_UNIT=unit, **fields)
            reader.add_disjunction()
            reader.add_match(UNIT=unit, **fields)
            return list(reader)

    def output(self, unit: str = "bccnd.service") -> str:
        """The messages of a unit as text."""
        return "\n".join(str(one.get("MESSAGE")) for one in self.journal(unit))

    def clients(self) -> list[dict[str, Any]]:
        """Who is connected, as the daemon sees it."""
        return [json.loads(line) for line in self.run("bccn", "clients", "--json").splitlines()]

    def page(self, path: str = "/metrics") -> str:
        network = f"--net=/run/netns/{self.network}"
        code = ["nsenter", network, sys.executable, "-c", _GET, f"http://127.0.0.1:9540{path}"]
        return subprocess.run(code, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric that carry these labels."""
        return metric(self.page(), name, **labels)

    def kernel_drops(self) -> int:
        """Datagrams that the kernel did not keep for sockets of the segment's port."""
        lines = Path(f"/proc/{self.leader}/net/udp").read_text().splitlines()[1:]
        return sum(int(one.split()[-1]) for one in lines if one.split()[1].endswith(f":{PORT:04X}"))


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _removed(folder: Path) -> bool:
    with suppress(OSError):
        remove_cgroup(folder)
    return not folder.exists()


def dpkg(host: Host, *words: str) -> str:
    """Run dpkg as from a script: it asks no questions, and a changed configuration stays."""
    return host.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--force-confold", *words, timeout=120)
