"""Modes of the files that commands write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def private_files() -> Iterator[None]:
    """Make new files and folders of this process and its children unreadable for others, as the units do: files of a
    journal or of tables may hold payloads and names. A stricter umask stays in force."""
    before = os.umask(0o077)
    os.umask(before | 0o027)
    try:
        yield
    finally:
        os.umask(before)
