"""What all booted hosts of one run stand on: a tree unpacked into memory, layers on top of it, and their end."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: the flag of unshare(2) for a mount table of one's own
_CLONE_NEWNS: Final = 0x00020000
#: for the tree (300 MB) and what all hosts of a run write
_ROOM: Final = "4G"
#: begins the names of whatever outlives a process that was killed
PREFIX: Final = "bccnd-t"
_OURS: Final = re.compile(rf"^{PREFIX}(\d+)-?[a-z]*$")


class CannotBoot(Exception):
    """Why no host can be booted here."""


def command(*words: str, timeout: float = 60) -> str:
    """Run a command of this machine; what it says. Raises CannotBoot with its complaint."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBoot(f"{' '.join(words[:3])}: {error}") from None
    if done.returncode:
        raise CannotBoot(f"{' '.join(words)} ended with status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def cgroups() -> list[Path]:
    """The cgroup trees that a systemd in a container needs a place in: the unified one, and sometimes another."""
    base = Path("/sys/fs/cgroup")
    return [one for one in (base, base / "unified", base / "systemd") if (one / "cgroup.procs").exists()]


def look() -> None:
    """Raises CannotBoot where it can be seen at once that no host can be booted."""
    if os.geteuid() != 0:
        raise CannotBoot("not root: only root can boot hosts")
    for needed in ("dpkg-deb", "systemd-nspawn", "nsenter", "setpriv", "ip", "debootstrap", "zstd"):
        if shutil.which(needed) is None:
            raise CannotBoot(f"there is no {needed}: make test-systemd installs it (Debian, Ubuntu)")


def _gone(pid: int) -> bool:
    return pid != os.getpid() and not Path(f"/proc/{pid}").exists()


def sweep() -> None:
    """Take away what runs that were killed have left: empty folders, and names of networks that are no more."""
    left: list[tuple[Path, Callable[[Path], object]]] = [(tree, remove_cgroup) for tree in cgroups()]
    left += [(Path("/run/netns"), _delete_network), (Path("/var/tmp"), shutil.rmtree)]
    for folder, remove in left:
        for one in folder.glob(f"{PREFIX}*"):
            found = _OURS.match(one.name)
            if found and _gone(int(found[1])):
                with suppress(OSError):
                    remove(one)


def _delete_network(file: Path) -> None:
    subprocess.run(["ip", "netns", "delete", file.name], check=False, capture_output=True)


def remove_cgroup(folder: Path) -> None:
    """Raises OSError while a process is in it."""
    for below, _, _ in os.walk(folder, topdown=False):
        os.rmdir(below)


class Stage:
    """A folder in memory with the unpacked tree in ``tree``; `close` takes all of it away."""

    def __init__(self, archive: Path) -> None:
        sweep()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNS):
            raise CannotBoot(f"no mount table of our own: {os.strerror(ctypes.get_errno())}")
        command("mount", "--make-rprivate", "/")
        self.folder = Path(f"/var/tmp/{PREFIX}{os.getpid()}")
        self.folder.mkdir(mode=0o755)
        command("mount", "-t", "tmpfs", "-o", f"size={_ROOM},mode=755", "bccnd-test", str(self.folder))
        self.tree = self.folder / "tree"
        self.tree.mkdir()
        command("tar", "-C", str(self.tree), "--numeric-owner", "-I", "zstd", "-xpf", str(archive))

    def tool(self, program: Path, name: str) -> None:
        """Put a program into the tree, for every host."""
        shutil.copy(program, self.tree / "usr/local/bin" / name)
        (self.tree / "usr/local/bin" / name).chmod(0o755)

    def close(self) -> None:
        subprocess.run(["umount", "-R", "-l", str(self.folder)], check=False, capture_output=True)
        self.folder.rmdir()


class Layer:
    """What one host has written, on top of the tree and of the layers below; ``root`` is what it sees.

    With ``room`` its disk has only so much (`64M`).
    """

    def __init__(self, stage: Stage, name: str, below: tuple[Layer, ...] = (), room: str = "") -> None:
        self.folder = stage.folder / name
        self.folder.mkdir()
        if room:
            command("mount", "-t", "tmpfs", "-o", f"size={room},mode=755", "bccnd-test", str(self.folder))
        self.below = below
        self.upper, self.root = self.folder / "upper", self.folder / "root"
        for one in (self.upper, self.folder / "work", self.root):
            one.mkdir(mode=0o755)
        lower = ":".join(str(one) for one in (*(layer.upper for layer in reversed(below)), stage.tree))
        options = f"lowerdir={lower},upperdir={self.upper},workdir={self.folder / 'work'}"
        command("mount", "-t", "overlay", "-o", options, "bccnd-test", str(self.root))

    def unmount(self) -> None:
        """What was written stays, for layers above."""
        command("umount", str(self.root))

    def close(self) -> None:
        subprocess.run(["umount", "-R", "-l", str(self.root)], check=False, capture_output=True)
        subprocess.run(["umount", "-R", "-l", str(self.folder)], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def tree(deb: Path) -> Path:
    """The packed tree of a host with all that a package depends on; made where it is not there yet."""
    made = subprocess.run(
        [str(ROOT / "packaging/tree.sh"), str(ROOT / ".cache/trees"), str(deb)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=600,
    )
    if made.returncode:
        raise CannotBoot("packaging/tree.sh could not make the tree of a host (see above)")
    return Path(made.stdout.split()[-1])
