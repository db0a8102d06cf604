"""The error for files that cannot be read as what they should be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa


class DamagedFileError(Exception):
    """A file that is not Parquet, not complete, changed since it was written, or without a column that it must have.
    Its text is the reason."""


@contextlib.contextmanager
def detect_damage() -> Iterator[None]:
    """Raise DamagedFileError where pyarrow cannot decode a file. Some of these errors are an OSError without errno."""
    try:
        yield
    except pa.ArrowException as error:
        raise DamagedFileError(_first_line(error)) from error
    except OSError as error:
        if error.errno is None:
            raise DamagedFileError(_first_line(error)) from error
        raise


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
