"""A checksum over a whole Parquet file; the format itself has checksums for pages only.

Eight bytes stand between the last page and the footer: ``BCRC`` and the CRC-32 of all other bytes of the file, as a
little-endian number. Offsets in Parquet are absolute, so other readers never read these bytes. The footer says that
they exist, so that a damaged mark does not pass for a file without one.
"""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from bccnd.journal.damage import DamagedFileError, detect_damage

#: key and value in the footer's metadata
ANNOUNCED: Final = {"bccn.checksum": "crc32"}
_MARK: Final = b"BCRC"
#: bytes of the mark and the checksum
_SIZE: Final = 8
_PARQUET: Final = b"PAR1"
#: bytes of the footer's length and of ``PAR1`` behind it
_TAIL: Final = 8
#: bytes read at once: on an object store each read is a request
_CHUNK: Final = 4 << 20


def seal(data: memoryview) -> tuple[bytes | memoryview, ...]:
    """Return the pieces of a Parquet file with its checksum. Its footer must have `ANNOUNCED`."""
    footer = _footer_start(len(data), bytes(data[-_TAIL:]))
    pages = data[:footer]
    checksum = zlib.crc32(data[footer:], zlib.crc32(_MARK, zlib.crc32(pages)))
    return pages, _MARK + checksum.to_bytes(4, "little"), data[footer:]


def verify(filesystem: pafs.FileSystem, path: str) -> None:
    """Read a whole file and check that it is as it was written: by the checksum of the file, or, where another program
    has written it, by those of its pages, if it has any. Raises DamagedFileError, OSError."""
    with filesystem.open_input_file(path) as file:
        size = file.size()
        footer = _footer_start(size, file.read_at(_TAIL, max(0, size - _TAIL)))
        mark = file.read_at(_SIZE, max(0, footer - _SIZE))
        if mark.startswith(_MARK) and len(mark) == _SIZE:
            _check(file, footer - 4, mark[4:])
            return
        with detect_damage():
            parquet = pq.ParquetFile(file, page_checksum_verification=True)
            if ANNOUNCED.keys() & {key.decode("utf-8", "replace") for key in parquet.metadata.metadata or {}}:
                raise DamagedFileError("its checksum is damaged")
            for _ in parquet.iter_batches():
                pass


def _footer_start(size: int, tail: bytes) -> int:
    """Return the offset of the footer, from the last bytes of a file. Raises DamagedFileError."""
    start = size - _TAIL - int.from_bytes(tail[:4], "little")
    if len(tail) < _TAIL or not tail.endswith(_PARQUET) or start < len(_PARQUET):
        raise DamagedFileError("it does not end as a Parquet file")
    return start


def _check(file: pa.NativeFile, place: int, expected: bytes) -> None:
    """Compare the checksum at this offset with that of the bytes around it. Raises DamagedFileError."""
    checksum, left = 0, place
    file.seek(0)
    while chunk := file.read(min(_CHUNK, left)):
        checksum = zlib.crc32(chunk, checksum)
        left -= len(chunk)
    file.seek(place + 4)
    while chunk := file.read(_CHUNK):
        checksum = zlib.crc32(chunk, checksum)
    if left or checksum.to_bytes(4, "little") != expected:
        raise DamagedFileError("its checksum is wrong")
