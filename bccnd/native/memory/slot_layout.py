"""Layout of the memory that holds what a daemon remembers of sources, and its counters; it may outlive the process.

Invariant: it can be read at any moment, wherever the writer was killed: what a change is about to overwrite stands in
the undo area first. The magic has the version, which changes with anything here. Numbers are in machine byte order.

=======  ===============================================================================================
at       content
=======  ===============================================================================================
0        the magic
8        number of the current or last change
16       serial of the input that it belongs to; 0 for a change by time or by an operator
24       bytes used of the undo area; 0 when there is nothing to take back
32       1 if more had to be saved than the undo area holds
40       slots used so far, the one in front included
48       counters used so far
UNDO     entries: offset and size (8 bytes each) of what follows, as it was before the change
CELLS    counters: value, and the last change in which the value before it was saved
LABELS   the name of each counter
SLOTS    slots of 256 bytes; the first is the two ends of the list of sources
=======  ===============================================================================================

A slot has a head of 64 bytes, its key, and a body of 64 bytes:

=======  ===============================================================================================
at       content
=======  ===============================================================================================
0        kind; 0 while it is free
1, 2     state of liveness, size of the key
4        epoch (4 bytes)
8        twice the last change in which it was saved, plus 1 if that was the whole slot
16       last seq of a source, or the place in the order of other records
24, 32   heard and rank (doubles)
40       first slot of the window; 0 if no seq is absent (4)
44, 46   bytes of absent and of missing in the window (2 each)
48, 52   neighbours in the list of sources (4 each)
56       a number that no two uses of slots share
64       key: 128 bytes
192      body: of a source its first seq, beat (double), gap and interval (floats)
=======  ===============================================================================================

A slot of a window has the number of the next one at 4, and 240 bytes from 16 on.
"""

from __future__ import annotations

from typing import Final

MAGIC: Final = b"bccnmem1"

AT_CHANGE: Final = 8
AT_SERIAL: Final = 16
AT_UNDO: Final = 24
AT_OVERFLOW: Final = 32
AT_SLOTS: Final = 40
AT_CELLS: Final = 48

UNDO: Final = 4096
#: what a batch of datagrams changes: for each two slots and three of a window; and some counters
UNDO_SIZE: Final = 160 << 10
CELLS: Final = UNDO + UNDO_SIZE
CELL: Final = 16
MAX_CELLS: Final = 2048
LABELS: Final = CELLS + CELL * MAX_CELLS
LABEL: Final = 128
SLOTS: Final = LABELS + LABEL * MAX_CELLS
SLOT: Final = 256
HEAD: Final = 64
KEY: Final = 64
MAX_KEY: Final = 128
BODY: Final = 192
CHUNK: Final = 16
#: bytes of a window in one slot
CHUNK_SIZE: Final = SLOT - CHUNK
#: bytes by which memory is reserved
STEP: Final = 256 << 10

#: kinds of slots
FREE: Final = 0
SOURCE: Final = 1
IDENTITY: Final = 2
DEATH: Final = 3
ENDED: Final = 4
ANONYMOUS: Final = 5
LOSSES: Final = 6
SETTLED: Final = 7
WINDOW: Final = 254
ENDS: Final = 255


def size_for(slots: int) -> int:
    """Return the size of memory with room for so many slots, in bytes."""
    return SLOTS + SLOT * slots
