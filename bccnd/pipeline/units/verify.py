"""Verifies the new files of a journal by tasks of a runner, or here if they are few."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from bccnd.pipeline.inputs.journal_listing import ListedFile
from bccnd.pipeline.inputs.verification import JournalFile, verify
from bccnd.pipeline.lake.place import Root, usable
from bccnd.pipeline.units.work import Task

#: bytes of files that a task is worth
_WORTH: Final = 256 << 20

Found = list[JournalFile | str | None]


def verify_files(root: Root, files: Sequence[ListedFile], run: Callable[[Sequence[str]], list[str]]) -> Found:
    """What `verify` finds. Raises PipelineError."""
    parts: list[list[ListedFile]] = [[]]
    size = 0
    for file in files:
        if size >= _WORTH:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += file.size
    if len(parts) == 1:
        return verify(root, files)
    results = run([Task("verify", "", "", root.where, (), files=tuple(part)).to_text() for part in parts])
    return [_read(found) for result in results for found in json.loads(result)]


def run_verify(task: Task) -> Found:
    """Verify the files of a task. Raises PipelineError: no_place."""
    with usable(task.journal):
        return verify(Root(task.journal), [ListedFile(*file) for file in task.files])


def _read(found: Any) -> JournalFile | str | None:
    if not isinstance(found, list):
        return found  # type: ignore[no-any-return]
    file = JournalFile(*found)
    return file._replace(segments=tuple(file.segments))
