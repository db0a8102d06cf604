"""Layout of the shared memory that records the input in progress, and its reader.

Invariant: it can be read at any moment, wherever the writer was killed. The magic has the version, which changes with
anything here. Numbers are in machine byte order.

The kernel writes here too: what it receives, and how many bytes of each packet it sent. So no event can happen without
being recorded. `NOTHING` stands where the kernel has not written yet.

==============  ============================================================================================
at              content
==============  ============================================================================================
0               the magic
8               serial of the current or last input
16              1 while it is in progress
24, 32          its kind, and the number of its segment or client
40              seconds (a double): when it arrived; 0 before it was judged
48              the next seq of its publisher before it; 0 if it had used none
56              slot + 1 of the client that is being sent to; 0 between two clients
64, 72, 80, 88  for it: messages in each packet, messages it got before, first header, number of headers
96              length of the client's log if its queue is being sent; 0 for messages of this input
104, 112        serial of an input that was found unfinished, and the number of retries
120             the highest client number so far
128, 192        header and vector of a single packet
SLOTS           for each client: its number, the serial of an input, messages it got of that, its next seq
PACKETS         headers and vectors of packets that are sent together
CASTS           for each segment: header, vector and address of a broadcast; 1 + the kernel's drops that were logged
INBOX           header, vector and bytes of a packet from a client
SEGMENT, ...    for each segment: label, headers, vectors, timestamps, addresses, datagrams
==============  ============================================================================================
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import Final, NamedTuple

#: version 1.0 called this memory a ledger
MAGIC: Final = b"bccnled1"

#: kinds of input: a batch of datagrams, a packet from a client, and a blocked packet that is retried
DATAGRAMS: Final = 1
PACKET: Final = 2
RETRY: Final = 3

AT_SERIAL: Final = 8
AT_OPEN: Final = 16
AT_KIND: Final = 24
AT_NUMBER: Final = 32
AT_NOW: Final = 40
AT_SEQ: Final = 48
AT_SENDING: Final = 56
AT_WEIGHT: Final = 64
AT_BASE: Final = 72
AT_FIRST: Final = 80
AT_COUNT: Final = 88
AT_LENGTH: Final = 96
AT_TRIED: Final = 104
AT_TRIES: Final = 112
AT_CLIENTS: Final = 120

#: sizeof(struct mmsghdr), sizeof(struct iovec), and the offset of msg_len
HEADER: Final = 64
VECTOR: Final = 16
DONE: Final = 56
#: not a length that the kernel writes
NOTHING: Final = 0xFFFFFFFF

MAX_SEGMENTS: Final = 64

#: beside the other numbers that are written for each packet
SINGLE_HEADER: Final = 128
SINGLE_VECTOR: Final = SINGLE_HEADER + HEADER
SLOTS: Final = 256
SLOT: Final = 32
#: the usual limit of descriptors; unused slots take no memory
MAX_SLOTS: Final = 65_536

PACKETS: Final = SLOTS + SLOT * MAX_SLOTS
#: packets per system call
MAX_PACKETS: Final = 1024
#: the number of the header of a single packet
SINGLE: Final = MAX_PACKETS
VECTORS: Final = PACKETS + HEADER * MAX_PACKETS

CASTS: Final = VECTORS + VECTOR * MAX_PACKETS
CAST: Final = 128
CAST_VECTOR: Final = HEADER
CAST_NAME: Final = HEADER + VECTOR
#: after a name, of `NAME` bytes; 0: unknown
CAST_DROPS: Final = CAST_NAME + 32

INBOX: Final = CASTS + CAST * MAX_SEGMENTS
INBOX_DATA: Final = INBOX + 128
#: the largest packet of the bus, plus one byte to detect larger ones
INBOX_SIZE: Final = 409_601

SEGMENT: Final = 3 << 20
#: datagrams in a batch, and the bytes of one at most
BATCH: Final = 64
MAX_DATAGRAM: Final = 65_536
LABEL: Final = 256
CONTROL: Final = 64
NAME: Final = 32
SEGMENT_HEADERS: Final = LABEL
SEGMENT_VECTORS: Final = SEGMENT_HEADERS + HEADER * BATCH
SEGMENT_CONTROL: Final = SEGMENT_VECTORS + VECTOR * BATCH
SEGMENT_NAMES: Final = SEGMENT_CONTROL + CONTROL * BATCH
SEGMENT_DATA: Final = SEGMENT_NAMES + NAME * BATCH
SEGMENT_SIZE: Final = (SEGMENT_DATA + MAX_DATAGRAM * BATCH + 4095) & ~4095

SIZE: Final = SEGMENT + SEGMENT_SIZE * MAX_SEGMENTS

_TWO_LENGTHS: Final = struct.Struct("=HH")


class InflightInput(NamedTuple):
    """An input that was in progress when the writer ended: ``datagrams`` with their ``names`` (sockaddr, ``name_size``
    bytes each) and ``stamps`` (nanoseconds, 0: unknown), or the ``packet`` of a client, empty at the end of its
    connection. ``now`` is when it arrived, 0 if it was not judged yet."""

    kind: int
    number: int
    serial: int
    now: float
    seq: int
    label: bytes = b""
    datagrams: tuple[bytes, ...] = ()
    names: bytes = b""
    name_size: int = 0
    stamps: tuple[int, ...] = ()
    packet: bytes = b""


class SendInProgress(NamedTuple):
    """A client that was being sent to: ``got`` messages of this input, or, with a ``length``, ``taken`` messages of its
    queue since its log had that length."""

    slot: int
    got: int
    taken: int
    length: int


class ClientSlot(NamedTuple):
    """A client: messages it got of an input, and its next seq (0: none used)."""

    number: int
    serial: int
    got: int
    seq: int


def initialize(inflight: mmap) -> None:
    """Initialize memory that is all zeros."""
    inflight[: len(MAGIC)] = MAGIC


def describe_segment(inflight: mmap, number: int, label: bytes, largest: int, name_size: int) -> None:
    """Set a segment's label and the sizes of its datagrams and addresses."""
    start = SEGMENT + SEGMENT_SIZE * number
    inflight[start : start + LABEL] = (_TWO_LENGTHS.pack(name_size, largest + 1) + label)[:LABEL].ljust(LABEL, b"\0")


def read_drops(inflight: mmap, number: int, label: bytes) -> int | None:
    """Return the kernel's drops of a segment that were logged; None if unknown."""
    start = SEGMENT + SEGMENT_SIZE * number + _TWO_LENGTHS.size
    drops = read_number(inflight, CASTS + CAST * number + CAST_DROPS)
    known = inflight[start : start + LABEL - _TWO_LENGTHS.size].rstrip(b"\0") == label[: LABEL - _TWO_LENGTHS.size]
    return drops - 1 if drops and known else None


def write_drops(inflight: mmap, number: int, drops: int) -> None:
    write_number(inflight, CASTS + CAST * number + CAST_DROPS, drops + 1)


def is_valid(inflight: mmap) -> bool:
    """Whether this memory has the layout of this version."""
    return len(inflight) == SIZE and inflight[: len(MAGIC)] == MAGIC


def tries(inflight: mmap, serial: int) -> int:
    """Return how often an unfinished input was retried."""
    return read_number(inflight, AT_TRIES) if read_number(inflight, AT_TRIED) == serial else 0


def count_try(inflight: mmap, serial: int) -> None:
    """Count that an unfinished input is retried."""
    count = 1 + tries(inflight, serial)
    write_number(inflight, AT_TRIED, serial)
    write_number(inflight, AT_TRIES, count)


def read_number(inflight: mmap, at: int) -> int:
    number: int = struct.unpack_from("=Q", inflight, at)[0]
    return number


def write_number(inflight: mmap, at: int, number: int) -> None:
    struct.pack_into("=Q", inflight, at, number)


def read_slot(inflight: mmap, number: int) -> ClientSlot:
    return ClientSlot(*struct.unpack_from("=4Q", inflight, SLOTS + SLOT * number))


def write_slot(inflight: mmap, number: int, slot: ClientSlot) -> None:
    struct.pack_into("=4Q", inflight, SLOTS + SLOT * number, *slot)


def read_unfinished(inflight: mmap) -> InflightInput | None:
    """Return the input that was in progress, if any."""
    serial, is_open, kind, number = struct.unpack_from("=4Q", inflight, AT_SERIAL)
    if not is_open:
        return None
    now, seq = struct.unpack_from("=dQ", inflight, AT_NOW)
    found = InflightInput(kind, number, serial, now, seq)
    if kind == PACKET:
        size = _done(inflight, INBOX)
        return found._replace(packet=inflight[INBOX_DATA : INBOX_DATA + size]) if size <= INBOX_SIZE else None
    if kind == DATAGRAMS and number < MAX_SEGMENTS:
        return _with_datagrams(inflight, found)
    return found if kind == RETRY else None


def _with_datagrams(inflight: mmap, found: InflightInput) -> InflightInput | None:
    start = SEGMENT + SEGMENT_SIZE * found.number
    name_size, stride = _TWO_LENGTHS.unpack_from(inflight, start)
    label = inflight[start + _TWO_LENGTHS.size : start + LABEL].rstrip(b"\0")
    sizes = []
    for number in range(BATCH):
        size = _done(inflight, start + SEGMENT_HEADERS + HEADER * number)
        if size == NOTHING:
            break
        sizes.append(min(size, stride))
    if not sizes:
        return None
    data, names = start + SEGMENT_DATA, start + SEGMENT_NAMES
    return found._replace(
        label=label,
        datagrams=tuple(inflight[data + stride * i : data + stride * i + size] for i, size in enumerate(sizes)),
        names=inflight[names : names + name_size * len(sizes)],
        name_size=name_size,
        stamps=tuple(_stamp(inflight, start, i) for i in range(len(sizes))),
    )


def _stamp(inflight: mmap, start: int, number: int) -> int:
    if not read_number(inflight, start + SEGMENT_HEADERS + HEADER * number + 40):  # msg_controllen
        return 0
    seconds, nanoseconds = struct.unpack_from("=qq", inflight, start + SEGMENT_CONTROL + CONTROL * number + 16)
    return int(seconds * 1_000_000_000 + nanoseconds)


def read_sending(inflight: mmap) -> SendInProgress | None:
    """Return the client that was being sent to, if any."""
    slot, weight, base, first, count, length = struct.unpack_from("=6Q", inflight, AT_SENDING)
    if not slot or first + count > MAX_PACKETS + 1:
        return None
    start = header_at(first)
    headers = range(start, start + HEADER * count, HEADER)
    taken = weight * sum(_done(inflight, at) != NOTHING for at in headers)
    return SendInProgress(slot - 1, base + taken, taken, length)


def was_broadcast(inflight: mmap, segment: int) -> bool:
    """Whether the broadcast of an unfinished `PACKET` or `RETRY` to a segment was sent."""
    return _done(inflight, CASTS + CAST * segment) != NOTHING


def header_at(number: int) -> int:
    """Return the offset of a packet's header."""
    return SINGLE_HEADER if number == SINGLE else PACKETS + HEADER * number


def _done(inflight: mmap, header: int) -> int:
    size: int = struct.unpack_from("=I", inflight, header + DONE)[0]
    return size
