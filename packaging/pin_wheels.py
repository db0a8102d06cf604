"""Writes packaging/wheels/*.txt: the wheels that the Debian package is built with (tools) and that it ships (carried),
in the versions of packaging/constraints.txt, each with its hash for every Python and machine that the package is built
for. `make pin` runs it; packaging/fetch-wheels.sh fetches nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
GROUPS: Final = {"tools": ("Cython", "packaging", "setuptools"), "carried": ("pydantic",)}
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
MACHINES: Final = ("x86_64", "aarch64")
#: the oldest C libraries first that wheels for Linux are made for
PLATFORMS: Final = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")


def resolve(*words: str) -> dict[str, tuple[str, str]]:
    """The version and the hash of the wheel that pip would install of each package."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--dry-run"]
    command += ["--ignore-installed", "--only-binary", ":all:", "--report", "-", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 -- our own
    return {
        one["metadata"]["name"]: (one["metadata"]["version"], one["download_info"]["archive_info"]["hashes"]["sha256"])
        for one in json.loads(done.stdout)["install"]
    }


def main() -> None:
    pins = {
        group: {name: version for name, (version, _) in resolve("-c", str(HERE / "constraints.txt"), *names).items()}
        for group, names in GROUPS.items()
    }
    exact = sorted({f"{name}=={version}" for found in pins.values() for name, version in found.items()})
    hashes: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as nowhere:
        for python in PYTHONS:
            for machine in MACHINES:
                platforms = [word for one in PLATFORMS for word in ("--platform", f"{one}_{machine}")]
                words = ("--no-deps", "--target", nowhere, "--python-version", python, *platforms, *exact)
                for name, (_, digest) in resolve(*words).items():
                    hashes.setdefault(name, set()).add(digest)
    (HERE / "wheels").mkdir(exist_ok=True)
    for group, found in pins.items():
        lines = ["# Written by `make pin` (packaging/pin_wheels.py)."]
        for name, version in sorted(found.items(), key=lambda pin: pin[0].lower()):
            lines.append(
                " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{one}" for one in sorted(hashes[name]))])
            )
        (HERE / "wheels" / f"{group}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
