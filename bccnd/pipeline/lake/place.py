"""Small files below a folder or URI, each written as a whole, on any file system that pyarrow supports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from bccnd.core.formats.uri import is_uri
from bccnd.errors import PipelineError
from bccnd.journal import files

#: file systems on which a file appears when it has been written, in the place of the one before
_OBJECT_STORES: Final = ("s3", "gcs", "abfs")
_NEXT: Final = ".next"


class Root:
    """A folder, by its path or URI; paths are those below it. Every method raises OSError or pa.ArrowException."""

    def __init__(self, where: str) -> None:
        self.filesystem, self.path = files.open_root(where)
        self.is_path = not is_uri(where)
        self.where = self.path if self.is_path else where
        self.is_local = isinstance(self.filesystem, pafs.LocalFileSystem)

    def at(self, path: str) -> str:
        """The whole path or URI of something below the folder."""
        if self.is_path:
            return f"{self.where}/{path}"
        place, mark, options = self.where.partition("?")
        return f"{place.rstrip('/')}/{path}{mark}{options}"

    def names(self, path: str = "") -> list[str]:
        """What is in a folder; nothing where there is none."""
        return sorted(entry.base_name for entry in self._entries(path))

    def folders(self, path: str = "") -> list[str]:
        """The folders directly below a folder; nothing where there is none."""
        return sorted(entry.base_name for entry in self._entries(path) if entry.type == pafs.FileType.Directory)

    def _entries(self, path: str = "") -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(f"{self.path}/{path}".rstrip("/"), allow_not_found=True)
        return files.entries(self.filesystem, selector)

    def files(self, path: str = "") -> list[tuple[str, int, int]]:
        """All files below a folder, sorted, with their sizes and when they were written (nanoseconds since 1970);
        nothing where there is none."""
        folder = f"{self.path}/{path}".rstrip("/")
        entries = files.entries(self.filesystem, pafs.FileSelector(folder, allow_not_found=True, recursive=True))
        return sorted(
            (entry.path[len(self.path) + 1 :], entry.size, entry.mtime_ns or 0)
            for entry in entries
            if entry.type == pafs.FileType.File
        )

    def text(self, path: str) -> str | None:
        """What `put` has written, or None."""
        for name in (path, path + _NEXT):
            with suppress(FileNotFoundError):
                with self.filesystem.open_input_stream(f"{self.path}/{name}") as stream:
                    text = stream.read().decode()
                # a file without its end has not been written completely
                if text.endswith("\n"):
                    return str(text)
        return None

    def put(self, path: str, text: str) -> None:
        """Write a small file; readers see the old or the new one."""
        place = f"{self.path}/{path}"
        whole = self.filesystem.type_name in _OBJECT_STORES
        if not whole:
            self.filesystem.create_dir(place.rpartition("/")[0], recursive=True)
        with self.filesystem.open_output_stream(place if whole else place + _NEXT) as stream:
            stream.write(f"{text}\n".encode())
        if not whole:
            self.filesystem.move(place + _NEXT, place)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(f"{self.path}/{path}")


@contextmanager
def usable(where: str) -> Iterator[None]:
    """Explain in one line why a folder cannot be used. Raises PipelineError: no_place."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = (text.splitlines() or [type(error).__name__])[0]
        raise PipelineError(
            "no_place", f"{where} cannot be used: {reason}", "name a folder that this user may read and write"
        ) from error
