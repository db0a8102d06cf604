"""What the tasks of a run get: their own few words as JSON, and files below the run's own folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from bccnd.pipeline.lake.place import Root

WORK: Final = "_work"


@dataclass(frozen=True)
class Task:
    """A task of a run: days in their order, and shares from ``low`` to ``high``. Places are paths or URIs; credentials
    are in the environment of the process that runs it."""

    kind: str
    run: str
    tables: str
    journal: str
    days: tuple[str, ...]
    low: int = 0
    high: int = 255
    memory_mb: int = 1024
    threads: int = 1
    #: days for which an epoch or a silence that nothing follows is carried on
    carry_days: int = 7
    #: of the journal, to be verified
    files: tuple[tuple[str, int, int, str], ...] = ()

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Task:
        fields = json.loads(text)
        return cls(**{**fields, "days": tuple(fields["days"])})

    @property
    def folder(self) -> str:
        """The run's own folder, below the tables."""
        return f"{WORK}/{self.run}"

    @property
    def whole(self) -> bool:
        """Whether it has all shares."""
        return (self.low, self.high) == (0, 255)


class Runner(Protocol):
    """Runs tasks, each a text of JSON: in this process or on a cluster."""

    #: whether tasks leave this process
    remote: bool
    #: how many tasks run side by side
    tasks: int
    #: for DuckDB in each task
    threads: int
    memory_mb: int

    def run(self, tasks: Sequence[str]) -> list[str]:
        """Return what `run_task` returns for each task, in their order. Raises PipelineError."""


def put(root: Root, task: Task, name: str, content: Any) -> None:
    """Leave something for the tasks of a run."""
    root.put(f"{task.folder}/{name}.json", json.dumps(content))


def get(root: Root, task: Task, name: str) -> Any:
    """What `put` has left."""
    text = root.text(f"{task.folder}/{name}.json")
    if text is None:
        raise FileNotFoundError(f"{task.folder}/{name}.json")
    return json.loads(text)
