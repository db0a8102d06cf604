"""Compiled modules: the build under test, the sdist, and the wheels."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from bccnd import compiled_modules
from docs.site import links
from tests.conftest import COMPILED, LIBRARY, SUFFIX
from tests.e2e.harness import Daemon
from tests.support import ROOT, cannot_here
from tests.tree import repository


def test_the_build_under_test_is_the_one_that_is_loaded() -> None:
    for name in compiled_modules.COMPILED:
        assert str(importlib.import_module(name).__file__).endswith(SUFFIX) == (name in COMPILED), name


def run(*words: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command without what this process has set for its own tests, and return what it says."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BCCND", "PYTHON", "PYTEST"))}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist that comes of the files of the repository, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    for name in repository():
        target = folder / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    build = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
    run(sys.executable, "-c", build, cwd=folder / "tree", CC="/bin/false")
    (packed,) = folder.glob("*.tar.gz")
    (folder / "unpacked").mkdir()
    run("tar", "-xf", packed, "-C", folder / "unpacked", cwd=folder)
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


def wheel(tree: Path, folder: Path, **environment: str) -> tuple[Path, str]:
    """Build the wheel of a tree; return it, and what the build says."""
    shutil.copytree(tree, folder / "tree")
    options = ["--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    command: list[str | Path] = [sys.executable, "-m", "pip", "wheel", "-v", *options, "-w", folder / "out", "."]
    said = run(*command, cwd=folder / "tree", **environment)
    (found,) = (folder / "out").iterdir()
    return found, said


def check_files(archive: zipfile.ZipFile, built: set[str]) -> None:
    """Check that a wheel holds what every wheel does, and what was built; no sources of what is compiled."""
    wanted = {name for name in repository() if re.fullmatch(r"bccnd/.*\.(py|typed|css|html|js|svg|toml)", name)}
    for name in repository():
        if re.fullmatch(r"etc/(grafana|prometheus)/.*", name):
            wanted.add(name.replace("etc/", "bccnd/share/"))
    assert {name for name in archive.namelist() if name.startswith("bccnd/")} == wanted | built


def kinds_loaded(folder: Path) -> set[str]:
    """How the compiled modules are loaded from a wheel that was unpacked."""
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        f"import importlib, bccnd.daemon\n"
        f"assert bccnd.__file__.startswith({str(folder)!r})\n"
        f"print(*{{importlib.import_module(name).__file__.rpartition('.')[2] for name in {COMPILED}}})"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
def test_the_sdist_holds_the_repository(sdist: Path) -> None:
    held = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    assert set(repository()) <= held
    added = {name for name in held - set(repository()) if not name.startswith("bccnd.egg-info/")}
    assert added == {"PKG-INFO", "setup.cfg"}
    assert os.access(sdist / "packaging/need.sh", os.X_OK)
    # Package indexes show the description without the repository.
    targets = [found[2] for found in links((sdist / "PKG-INFO").read_text())]
    assert targets
    assert [target for target in targets if not target.startswith("https://")] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("wanted", [{"BCCND_PURE": "1"}, {}], ids=["asked for", "without a compiler"])
def test_the_pure_wheel_needs_no_compiler_and_fits_everywhere(
    sdist: Path, tmp_path: Path, wanted: dict[str, str]
) -> None:
    found, said = wheel(sdist, tmp_path, CC="/bin/false", CXX="/bin/false", **wanted)
    assert found.name.endswith("-py3-none-any.whl")
    assert ("building the pure package, as this machine cannot compile" in said) == (not wanted)
    with zipfile.ZipFile(found) as archive:
        check_files(archive, set())
    if wanted:
        check_client_alone(found, tmp_path)


def check_client_alone(found: Path, folder: Path) -> None:
    """Check that a program with nothing but the pure wheel can use the bus, blocking and on asyncio."""
    bare = folder / "bare"
    subprocess.run([sys.executable, "-m", "venv", str(bare)], check=True, capture_output=True)
    install = [str(bare / "bin/pip"), "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*install, str(found)], check=True, env={"PATH": "", "CC": "/bin/false"})
    code = (
        "import asyncio, sys, bccnd, bccnd.aio\n"
        "with bccnd.connect(sys.argv[1]) as bus, bus.subscribe('a') as messages:\n"
        "    bus.publish('a', 'blocking')\n"
        "    print(messages.receive(10).text, bus.sync())\n"
        "async def main():\n"
        "    async with bccnd.aio.connect(sys.argv[1]) as bus, bus.subscribe('a') as messages:\n"
        "        await bus.publish('a', 'asyncio')\n"
        "        print((await messages.receive(10)).text, await bus.sync())\n"
        "asyncio.run(main())\n"
        "bccnd.Endpoint(address='127.255.255.255', port=5999).open()\n"
    )
    with Daemon(folder / "daemon") as daemon:
        command = [str(bare / "bin/python"), "-I", "-c", code, str(daemon.bus)]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "blocking []\nasyncio []\n", "")


@pytest.mark.slow
@pytest.mark.timeout(1800)  # it is compiled
def test_the_compiled_wheel_has_every_module(sdist: Path, tmp_path: Path) -> None:
    headers = [Path(sysconfig.get_path("include")) / "Python.h", Path("/usr/include/openssl/sha.h")]
    if shutil.which("cc") is None or not all(header.is_file() for header in headers):
        cannot_here("there is no compiler, or not the headers of Python and OpenSSL")
    found, _ = wheel(sdist, tmp_path)
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.search(rf"-{version}-{version}-linux_\w+\.whl$", found.name)
    with zipfile.ZipFile(found) as archive:
        check_files(archive, {LIBRARY})
        archive.extractall(tmp_path / "unpacked")
    assert kinds_loaded(tmp_path / "unpacked") == {"so"}
