"""Modes of the files that commands write."""

from __future__ import annotations

from contextlib import AbstractContextManager

from bccnd.file_modes import stricter_umask


def private_files() -> AbstractContextManager[None]:
    """Make new files and folders of this process and its children unreadable for others, as the units do: files of a
    journal or of tables may hold payloads and names. A stricter umask stays in force."""
    return stricter_umask(0o027)
