"""How results are written: Markdown tables and JSON, with when and where they were measured."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

console: Final = Console(stderr=True, highlight=False, soft_wrap=True)
#: asked of the Python that runs the daemon
QUESTION: Final = """
import json, platform
from importlib.metadata import version
import bccnd.core.receiving.ingress as ingress
print(json.dumps({"version": version("bccnd"), "compiled": ingress.__file__.endswith(".so"),
                  "python": platform.python_version()}))
"""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def about_machine() -> dict[str, Any]:
    models = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cpu = models[0] if models else platform.machine()
    return {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release()}


def about_daemon(program: Path) -> dict[str, Any]:
    """Version of bccnd and of the Python beside it, and whether its core is compiled; null where that does not tell."""
    about: dict[str, Any] = {"program": str(program), "version": None, "compiled": None, "python": None}
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        command = [str(program.with_name("python")), "-P", "-c", QUESTION]
        about |= json.loads(subprocess.run(command, capture_output=True, timeout=60, check=False).stdout)
    return about


def about(command: Sequence[str], date: str, machine: dict[str, Any], daemon: dict[str, Any]) -> str:
    """When and where figures were taken."""
    kind = {True: "compiled", False: "not compiled", None: "unknown whether compiled"}[daemon["compiled"]]
    return (
        f"`{' '.join(command)}`: {date[:10]}, {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, "
        f"bccnd {daemon['version'] or '?'} ({kind}), Python {daemon['python'] or '?'}"
    )


def table(head: Iterable[str], rows: Iterable[Iterable[str]], words: int = 0) -> list[str]:
    """The lines of a table; the first ``words`` columns hold words, and the others numbers."""
    columns = list(head)
    rule = "|".join(" --- " if number < words else " ---: " for number in range(len(columns)))
    return [f"| {' | '.join(columns)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]


def write(name: str, out: Path, found: Any, text: str) -> None:
    """Write NAME.json and NAME.md to a folder, and print the text."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / f"{name}.md").write_text(text)
    print(text)
    console.print(f"written to {out}")
