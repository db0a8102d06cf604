"""The few things that are worth writing in C: looking at bytes, look-ups, notes, the keyed hash, clocks, packets in
and out of the kernel, and the ledger of them.

Law: a leaf decides nothing and imports nothing of this package. Each of its modules is a `.py`, which says what it
does and runs anywhere; beside those that are called for every datagram stands the same in C terms (`.pxd`, `.pyx`),
which takes its place where it was built.
"""
