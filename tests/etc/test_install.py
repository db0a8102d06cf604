"""Rules and dashboard come with the package, and the commands of docs/monitoring.md work."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.docs.blocks import blocks, commands
from tests.etc.rulebook import DASHBOARD, FOLDER, RULES
from tests.prometheus import program
from tests.support import ROOT

DOCUMENT: Final = ROOT / "docs/monitoring.md"


def test_the_package_has_all_of_it() -> None:
    debian = (ROOT / "packaging/debian/rules").read_text()
    found = re.findall(r"-t \$\(TREE\)/usr/(share/bccnd/\w+) (etc/\S+)", debian)
    assert {place: set(ROOT.glob(pattern)) for place, pattern in found} == {
        "share/bccnd/prometheus": {path for path in FOLDER.iterdir() if path.is_file()},
        "share/bccnd/grafana": {path for path in DASHBOARD.parent.iterdir() if path.is_file()},
    }


def test_what_monitoring_md_says_can_be_done(tmp_path: Path) -> None:
    """What is meant for the root of the host goes below ``tmp_path``."""
    there = tmp_path / "usr/share/bccnd"
    shutil.copytree(FOLDER, there / "prometheus")
    shutil.copytree(FOLDER, tmp_path / "etc/prometheus")
    shutil.copy(FOLDER / "scrape.yml", tmp_path / "etc/prometheus/prometheus.yml")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "promtool").symlink_to(program("promtool"))
    # Nothing here is to reload a service, and the tool of Alertmanager is not on every machine.
    for name in ("systemctl", *(() if shutil.which("amtool") else ("amtool",))):
        (tools / name).symlink_to("/bin/true")
    followed = [
        command.text
        for block in blocks(f"docs/{DOCUMENT.name}", DOCUMENT.read_text())
        if (block.mark("run by") or "").startswith(f"tests/etc/{Path(__file__).name}")
        for command in commands(block)
    ]
    assert len(followed) == 5
    for text in followed:
        moved = re.sub(r"(?<![\w.])/(etc|usr)/", rf"{tmp_path}/\1/", text)
        done = subprocess.run(
            ["sh", "-ec", moved],
            env={"PATH": f"{tools}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    installed = (tmp_path / "etc/prometheus" / RULES.name).read_text()
    assert "bccnd.invalid" not in installed
    assert "https://wiki.example.org/bccnd/docs/runbook.md#bccndloss" in installed
