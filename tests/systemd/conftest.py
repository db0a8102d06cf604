"""Fixtures of the booted tests: packages, the tree, the hosts.

`make test-systemd` runs them; a run of all other tests does not collect them. Where no host can be booted they are
skipped, and the reason is said; with ``BCCND_REQUIRE_SYSTEMD=1`` that is a failure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import pytest

from tests.systemd import load
from tests.systemd.host import Host, dpkg
from tests.systemd.network import BROADCAST, Segment
from tests.systemd.stage import ROOT, CannotBoot, Layer, Stage, look, tree

_HERE: Final = Path(__file__).parent
#: for a test and what is made for it, which may be the package and the tree (s)
_TIMEOUT: Final = 900
_REPORTS: Final = pytest.StashKey[dict[str, pytest.TestReport]]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collected only if this folder, or something in it, is named."""
    asked = [Path(config.invocation_params.dir, one.partition("::")[0]) for one in config.args]
    return None if any(one.resolve().is_relative_to(_HERE) for one in asked) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).is_relative_to(_HERE):
            item.add_marker(pytest.mark.timeout(_TIMEOUT))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash.setdefault(_REPORTS, {})[report.when] = report
    return report


def cannot_boot(why: object) -> NoReturn:
    if os.environ.get("BCCND_REQUIRE_SYSTEMD", "0") not in ("", "0"):
        pytest.fail(f"BCCND_REQUIRE_SYSTEMD is set: {why}")
    pytest.skip(f"no hosts can be booted here: {why}")


class Packages(NamedTuple):
    """The package, and a newer build of it."""

    old: Path
    new: Path


def _version(deb: Path) -> str:
    return subprocess.run(["dpkg-deb", "-f", deb, "Version"], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """As `make deb` builds it; in ``BCCND_DEB`` there may be one that was built before."""
    try:
        look()
    except CannotBoot as why:
        cannot_boot(why)
    folder = tmp_path_factory.mktemp("packages")
    given = os.environ.get("BCCND_DEB")
    if given is None:
        made = subprocess.run(["make", "-s", "deb"], cwd=ROOT, check=False, capture_output=True, text=True)
        assert made.returncode == 0, f"make deb: {made.stdout[-4000:]}{made.stderr[-4000:]}"
        given = re.findall(r"\S*bccnd_\S+\.deb", made.stdout)[-1]
    old = folder / "old.deb"
    shutil.copy(ROOT / given, old)
    return Packages(old, _newer(ROOT / given, folder))


def _newer(package: Path, folder: Path) -> Path:
    """The same package under a higher version, by which it also calls itself."""
    version = f"{_version(package)}+newer"
    inside, new = folder / "inside", folder / "new.deb"
    subprocess.run(["dpkg-deb", "-R", package, inside], check=True)
    control = inside / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", control.read_text()))
    for module in inside.rglob("bccnd/version.py"):
        module.write_text(re.sub(r'(?m)^VERSION = ".*"$', f'VERSION = "{version}"', module.read_text()))
    (inside / "DEBIAN/md5sums").unlink(missing_ok=True)
    subprocess.run(["dpkg-deb", "-Znone", "-b", inside, new], check=True, stdout=subprocess.DEVNULL)
    return new


@pytest.fixture(scope="session")
def stage(packages: Packages) -> Iterator[Stage]:
    """The tree, with the load programs in it; and a first host that shows whether hosts can be booted at all."""
    try:
        stage = Stage(tree(packages.new))
    except CannotBoot as why:
        cannot_boot(why)
    try:
        for name, program in load.PROGRAMS.items():
            stage.tool(program, name)
        (stage.tree / "packages").mkdir()
        for deb in packages:
            shutil.copy(deb, stage.tree / "packages")
        yield stage
    finally:
        stage.close()


@pytest.fixture(scope="session")
def installed(stage: Stage) -> Iterator[Layer]:
    """What a host has written when the package was installed on it, and it was shut down."""
    layer = Layer(stage, "installed")
    try:
        _install(layer)
        layer.unmount()
        yield layer
    finally:
        layer.close()


def _install(layer: Layer) -> None:
    segment = Segment("a")
    host = Host(layer, "a", segment.names["a"])
    try:
        segment.open()
        host.boot()
        dpkg(host, "-i", "/packages/old.deb")
        host.power_off()
    except CannotBoot as why:
        cannot_boot(why)
    finally:
        host.close()
        segment.close()


class Hosts:
    """Makes the hosts of one test; all of them are taken away behind it."""

    def __init__(self, stage: Stage, installed: Layer) -> None:
        self.stage = stage
        self._installed = installed
        self.segment: Segment
        self.all: dict[str, Host] = {}
        self._programs: list[load.Program] = []

    def wire(self, letters: str) -> Segment:
        """The segment, for so many hosts."""
        self.segment = Segment(letters)
        self.segment.open()
        return self.segment

    def host(self, letter: str, *, bare: bool = False, room: str = "") -> Host:
        """A host that is not booted yet; a bare one has no package."""
        below = () if bare else (self._installed,)
        layer = Layer(self.stage, f"host-{letter}", below, room)
        self.all[letter] = host = Host(layer, letter, self.segment.names[letter])
        return host

    def ready(self, letter: str, settings: dict[str, Any] | None = None, *, room: str = "") -> Host:
        """A host with the package, a key and settings, booted, and its daemon active."""
        host = self.host(letter, room=room)
        self.configure(host, settings)
        host.boot()
        host.wait_active()
        return host

    def configure(self, host: Host, settings: dict[str, Any] | None = None) -> None:
        """Write a host's configuration and key."""
        host.write("/etc/bccnd/keys/hmac.key", load.KEY, 0o600)
        document: dict[str, Any] = {
            "host": f"host-{host.name}",
            "segments": [{"address": BROADCAST}],
            "integrity": {"algorithm": "hmac", "keys": ["/etc/bccnd/keys/hmac.key"]},
            # Whoever reads all the time never has to be told of a gap, however long it takes to start again.
            "bus": {"queue": {"messages": 8192}},
        }
        host.write("/etc/bccnd/bccnd.yaml", json.dumps({**document, **(settings or {})}))

    def close(self) -> None:
        for host in self.all.values():
            host.close()
            host.layer.close()
        if hasattr(self, "segment"):
            self.segment.close()

    def report(self) -> None:
        """Print what the hosts say about a failure."""
        for letter, host in self.all.items():
            if host.leader:
                print(f"---- host {letter}")
                print(host.run("systemctl", "status", "--no-pager", "-l", "bccnd.service", check=False))
                print(host.run("journalctl", "--no-pager", "-n", "40", "-u", "bccnd*", check=False))


@pytest.fixture
def hosts(request: pytest.FixtureRequest, stage: Stage, installed: Layer) -> Iterator[Hosts]:
    hosts = Hosts(stage, installed)
    try:
        yield hosts
        if any(report.failed for report in request.node.stash.get(_REPORTS, {}).values()):
            hosts.report()
    finally:
        hosts.close()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The key, for senders without a daemon."""
    file = tmp_path / "key"
    file.write_bytes(load.KEY)
    return file
