"""Limits the modes of new files, folders and sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def stricter_umask(bits: int) -> Iterator[None]:
    """Add ``bits`` to the umask of this process and its new children."""
    before = os.umask(0o777)
    os.umask(before | bits)
    try:
        yield
    finally:
        os.umask(before)


def private_files() -> AbstractContextManager[None]:
    """Make new files and folders of this process and its children unreadable for others, as the units do: files of a
    journal or of tables may hold payloads and names. A stricter umask stays in force."""
    return stricter_umask(0o027)
