"""Where everything stands in a ledger: the memory in which a daemon writes down what it is at, and which outlives it.

Law: a ledger can be read at any moment, whatever its writer was at when it was killed. The version is in the magic, and
changes whenever anything here does. Numbers are those of the machine: a ledger never leaves it.

The kernel writes into it too: what it receives, and for each packet that it was given how many bytes of it were sent.
So there is no moment between an event and its being written down. `NOTHING` stands where it has not written yet.

==============  ============================================================================================
at              what
==============  ============================================================================================
0               the magic
8               serial of the input that is or was worked on
16              1 while it is worked on
24, 32          its kind, and the number of the segment or of the client that it came from
40              seconds (a double): when it is said to have come; 0 while it was not looked at
48              the seq that its publisher was to use next before it; 0 where it had used none
56              slot + 1 of the client that is being sent to; 0 between two clients
64, 72, 80, 88  for that: messages in each packet, what it had got before, the first header, how many headers
96              length of what is known of that client, where its queue is sent; 0 where it is this input
104, 112        serial of an input that was found unfinished, and how often it was worked through again
120             the highest number that a client has had
128, 192        header and vector of a packet that is sent alone
SLOTS           for each client: its number, the serial of an input, how much it got of that, its next seq
PACKETS         headers and vectors of packets that are sent together
CASTS           for each segment: header, vector and address of what is broadcast there
INBOX           header, vector and bytes of a packet from a client
SEGMENT, ...    for each segment: label, headers, vectors, stamps, addresses, datagrams
==============  ============================================================================================
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import Final, NamedTuple

MAGIC: Final = b"bccnled1"

#: kinds of input: a batch of datagrams, a packet from a client, and one that had to wait and is tried again
DATAGRAMS: Final = 1
PACKET: Final = 2
HELD: Final = 3

AT_SERIAL: Final = 8
AT_OPEN: Final = 16
AT_KIND: Final = 24
AT_NUMBER: Final = 32
AT_NOW: Final = 40
AT_SEQ: Final = 48
AT_ARMED: Final = 56
AT_WEIGHT: Final = 64
AT_BASE: Final = 72
AT_FIRST: Final = 80
AT_COUNT: Final = 88
AT_LENGTH: Final = 96
AT_TRIED: Final = 104
AT_TRIES: Final = 112
AT_CLIENTS: Final = 120

#: sizeof(struct mmsghdr), sizeof(struct iovec), and where in the first the kernel writes what it has done
HEADER: Final = 64
VECTOR: Final = 16
DONE: Final = 56
#: no length that the kernel ever writes
NOTHING: Final = 0xFFFFFFFF

MAX_SEGMENTS: Final = 64

#: what is written for each packet stands together, on the page that is warm anyway
SINGLE_HEADER: Final = 128
SINGLE_VECTOR: Final = SINGLE_HEADER + HEADER
SLOTS: Final = 256
SLOT: Final = 32
#: as many clients as a process may have descriptors for, usually; memory is taken up only by those that are there
MAX_SLOTS: Final = 65_536

PACKETS: Final = SLOTS + SLOT * MAX_SLOTS
#: packets that the kernel takes with one call
MAX_PACKETS: Final = 1024
#: the number of the header of a packet that goes alone
SINGLE: Final = MAX_PACKETS
VECTORS: Final = PACKETS + HEADER * MAX_PACKETS

CASTS: Final = VECTORS + VECTOR * MAX_PACKETS
CAST: Final = 128
CAST_VECTOR: Final = HEADER
CAST_NAME: Final = HEADER + VECTOR

INBOX: Final = CASTS + CAST * MAX_SEGMENTS
INBOX_DATA: Final = INBOX + 128
#: the largest packet of the bus, and room to see that one is larger
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
    """An input that was worked on when the writer ended. ``datagrams`` with their ``names`` (sockaddr, ``name_size``
    bytes each) and ``stamps`` (nanoseconds, 0: unknown), or the ``packet`` of a client, which is empty at the end too;
    ``now`` is when the first of them is said to have come, 0 where nothing was done with it yet."""

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
    """A client that was being sent to: what it had got before and has got now of this input, or, for a ``length``, how
    many messages of its queue it has got since what is known of it was so long."""

    slot: int
    got: int
    taken: int
    length: int


class ClientSlot(NamedTuple):
    """A client: how much it has got of an input, and the seq that it is to use next (0: it has used none)."""

    number: int
    serial: int
    got: int
    seq: int


def begin(inflight: mmap) -> None:
    """Make a ledger of memory that is all zeros."""
    inflight[: len(MAGIC)] = MAGIC


def describe(inflight: mmap, number: int, label: bytes, largest: int, name_size: int) -> None:
    """Say what a segment's part holds: whose it is, and how far datagrams and addresses are apart."""
    start = SEGMENT + SEGMENT_SIZE * number
    inflight[start : start + LABEL] = (_TWO_LENGTHS.pack(name_size, largest + 1) + label)[:LABEL].ljust(LABEL, b"\0")


def is_inflight(inflight: mmap) -> bool:
    """Whether this is one that we understand."""
    return len(inflight) == SIZE and inflight[: len(MAGIC)] == MAGIC


def try_again(inflight: mmap, serial: int) -> int:
    """An unfinished input is going to be worked through again: how often, this time counted."""
    tries = 1 + (number_at(inflight, AT_TRIES) if number_at(inflight, AT_TRIED) == serial else 0)
    put_number(inflight, AT_TRIED, serial)
    put_number(inflight, AT_TRIES, tries)
    return tries


def number_at(inflight: mmap, at: int) -> int:
    number: int = struct.unpack_from("=Q", inflight, at)[0]
    return number


def put_number(inflight: mmap, at: int, number: int) -> None:
    struct.pack_into("=Q", inflight, at, number)


def slot(inflight: mmap, number: int) -> ClientSlot:
    return ClientSlot(*struct.unpack_from("=4Q", inflight, SLOTS + SLOT * number))


def put_slot(inflight: mmap, number: int, slot: ClientSlot) -> None:
    struct.pack_into("=4Q", inflight, SLOTS + SLOT * number, *slot)


def unfinished(inflight: mmap) -> InflightInput | None:
    """The input that was worked on, if there was one."""
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
    return found if kind == HELD else None


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
    if not number_at(inflight, start + SEGMENT_HEADERS + HEADER * number + 40):  # msg_controllen
        return 0
    seconds, nanoseconds = struct.unpack_from("=qq", inflight, start + SEGMENT_CONTROL + CONTROL * number + 16)
    return int(seconds * 1_000_000_000 + nanoseconds)


def armed(inflight: mmap) -> SendInProgress | None:
    """The client that was being sent to, if there was one."""
    slot, weight, base, first, count, length = struct.unpack_from("=6Q", inflight, AT_ARMED)
    if not slot or first + count > MAX_PACKETS + 1:
        return None
    start = header_at(first)
    headers = range(start, start + HEADER * count, HEADER)
    taken = weight * sum(_done(inflight, at) != NOTHING for at in headers)
    return SendInProgress(slot - 1, base + taken, taken, length)


def was_cast(inflight: mmap, segment: int) -> bool:
    """Whether what an unfinished `PACKET` or `HELD` has to say to a segment went out."""
    return _done(inflight, CASTS + CAST * segment) != NOTHING


def header_at(number: int) -> int:
    """Where the header of a packet stands."""
    return SINGLE_HEADER if number == SINGLE else PACKETS + HEADER * number


def _done(inflight: mmap, header: int) -> int:
    size: int = struct.unpack_from("=I", inflight, header + DONE)[0]
    return size
