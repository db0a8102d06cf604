"""Limits the modes of new files, folders and sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stricter_umask(bits: int) -> Iterator[None]:
    """Add ``bits`` to the umask of this process and its new children."""
    before = os.umask(0o777)
    os.umask(before | bits)
    try:
        yield
    finally:
        os.umask(before)
