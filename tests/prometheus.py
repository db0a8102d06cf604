"""Prometheus for tests: a server that scrapes given targets and is asked over its API, promtool, pages of metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

from tests.support import ROOT, Closing, cannot_here, free_port

#: seconds that the server may take to answer or end
PATIENCE: Final = 90.0


def program(name: str) -> Path:
    """The path of prometheus or promtool; without it the test is skipped."""
    unpacked = ROOT / ".cache/prometheus/usr/bin" / name
    found = str(unpacked) if unpacked.exists() else shutil.which(name)
    if found is None:
        cannot_here(f"there is no {name}: packaging/unpack-prometheus.sh .cache/prometheus gets it")
    return Path(found)


def promtool(*words: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(program("promtool")), *map(str, words)]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)


def metric(page: str, name: str, **labels: str) -> float:
    """The sum of the samples of a metric that carry these labels, on a page of metrics."""
    total = 0.0
    for found in re.finditer(rf"^bccnd_{name}(\{{.*\}})? (\S+)$", page, re.MULTILINE):
        if all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
            total += float(found[2])
    return total


class Prometheus(Closing):
    """A server with the given configuration, its files in ``folder``."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        server = program("prometheus")
        self._url = f"http://127.0.0.1:{free_port()}"
        file = folder / "prometheus.json"
        file.write_text(json.dumps(config))
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                server,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={self._url.removeprefix('http://')}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def _get(self, path: str, **options: str) -> Any:
        """The data of an answer; None while the server is not ready."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(options)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise AssertionError(f"{options}: {error.read().decode()}") from error
        except OSError as error:
            if self._process.poll() is not None:
                raise AssertionError(Path(self._log.name).read_text()) from error
        return None

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The result of an instant query: labels and value of each series."""
        data = self._get("query", query=query)
        return [(row["metric"], float(row["value"][1])) for row in data["result"]] if data else []

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._log.close()
