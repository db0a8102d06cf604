"""The workflows are valid, and call nothing but `make` with targets that exist."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.support import ROOT

WORKFLOWS: Final = sorted((ROOT / ".github/workflows").glob("*.yml"))
#: what an image lacks before anything can be checked out
SETUP: Final = re.compile(r"apt-get update && apt-get install [\w -]+")
CALL: Final = re.compile(r"(?:sudo CI=true )?make ([a-z][\w-]*)(?: [A-Z]+=(?:\"[^\"]*\"|\S+))*")


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    listed = {name for line in re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE) for name in line.split()}
    return listed & set(re.findall(r"^([a-z][\w-]*):", text, re.MULTILINE))


def variants(job: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The combinations of a job's matrix; one without values if it has none."""
    matrix: dict[str, list[str]] = job.get("strategy", {}).get("matrix", {})
    for values in itertools.product(*matrix.values()):
        yield dict(zip(matrix, values, strict=True))


def commands(job: dict[str, Any]) -> Iterator[str]:
    for values in variants(job):
        for step in job["steps"]:
            if "run" in step:
                filled = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda name: values[name[1]], step["run"])  # noqa: B023
                yield re.sub(r"\$\{\{ env\.\w+ \}\}", "", filled)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_calls_targets_that_exist(path: Any) -> None:
    workflow = yaml.safe_load(path.read_text())
    # YAML 1.1 reads the key `on` as true.
    assert set(workflow) == {"name", True, "permissions", "jobs"}
    assert workflow["name"] == path.stem
    for job in workflow["jobs"].values():
        assert set(job) <= {"strategy", "runs-on", "timeout-minutes", "steps", "container"}
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        called = [one for one in commands(job) if not SETUP.fullmatch(one)]
        assert called
        for one in called:
            found = CALL.fullmatch(one)
            assert found, one
            assert found[1] in targets(), one


def test_every_supported_python_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    matrices = {
        name: job["strategy"]["matrix"]["python"]
        for path in WORKFLOWS
        for name, job in yaml.safe_load(path.read_text())["jobs"].items()
        if "python" in job.get("strategy", {}).get("matrix", {})
    }
    assert matrices == {"test": supported, "wheels": supported}
    assert f">={supported[0]}" == project["requires-python"]
