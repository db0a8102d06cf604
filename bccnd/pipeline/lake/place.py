"""Files below a folder or URI, on any file system that pyarrow supports; small ones are written as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from bccnd.core.formats.uri import is_uri
from bccnd.errors import PipelineError
from bccnd.journal import files

#: file systems on which a file appears when it has been written, in the place of the one before
_OBJECT_STORES: Final = ("s3", "gcs", "abfs")
_NEXT: Final = ".next"


class Entry(NamedTuple):
    """What a folder has under a name; ``tag`` is the time of a disk's last change in nanoseconds, empty elsewhere."""

    name: str
    is_folder: bool
    size: int
    mtime_ns: int
    tag: str


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
        return [entry.name for entry in self.entries(path)]

    def folders(self, path: str = "") -> list[str]:
        """The folders directly below a folder; nothing where there is none."""
        return [entry.name for entry in self.entries(path) if entry.is_folder]

    def entries(self, path: str = "") -> list[Entry]:
        """What is directly in a folder, sorted by name; nothing where there is none. What has a name that is not UTF-8,
        or goes away meanwhile, is left out."""
        folder = f"{self.path}/{path}".rstrip("/")
        if self.is_local:
            return sorted(_scan(folder or "/"))
        infos = files.entries(self.filesystem, pafs.FileSelector(folder, allow_not_found=True))
        return sorted(
            Entry(info.base_name, info.type == pafs.FileType.Directory, info.size or 0, info.mtime_ns or 0, "")
            for info in infos
        )

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

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all that is in it, if it is there."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(f"{self.path}/{path}")


def _scan(folder: str) -> Iterator[Entry]:
    try:
        found = os.scandir(folder)
    except FileNotFoundError:
        return
    with found:
        for entry in found:
            with suppress(OSError, UnicodeEncodeError):
                entry.name.encode()
                status = entry.stat()
                tag = str(status.st_ctime_ns)
                yield Entry(entry.name, entry.is_dir(), status.st_size, status.st_mtime_ns, tag)


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
