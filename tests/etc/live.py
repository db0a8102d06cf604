"""A Prometheus with our rules, its clock run fast: what takes minutes there takes a second here."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.harness import PATIENCE
from tests.etc.rulebook import RULES, program
from tests.support import free_port


class Prometheus:
    """A server that scrapes some targets by job, every two seconds (a host that is busy with other tests takes one to
    answer), and whose alerts wait for a second only."""

    def __init__(self, folder: Path, targets: Mapping[str, str]) -> None:
        text, count = re.subn(r"^( +for:) \w+$", r"\1 1s", RULES.read_text(), flags=re.MULTILINE)
        assert count
        (folder / RULES.name).write_text(text)
        config = folder / "prometheus.json"
        jobs = [
            {"job_name": job, "static_configs": [{"targets": [target]}], "scrape_timeout": "2s"}
            for job, target in targets.items()
        ]
        every = {"scrape_interval": "2s", "evaluation_interval": "500ms"}
        config.write_text(json.dumps({"global": every, "rule_files": [RULES.name], "scrape_configs": jobs}))
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                str(program("prometheus")),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def _get(self, path: str, **options: str) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(options)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # not ready yet
                return None
            raise AssertionError(f"{options}: {error.read().decode()}") from error
        except OSError:  # not up yet
            return None

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The result of an instant query: labels and value of each series."""
        data = self._get("query", query=query)
        return [(row["metric"], float(row["value"][1])) for row in data["result"]] if data else []

    def value(self, query: str) -> float | None:
        rows = self.ask(query)
        return rows[0][1] if rows else None

    def alerts(self) -> list[dict[str, Any]]:
        data = self._get("alerts")
        return list(data["alerts"]) if data else []

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._log.close()
