"""Finds the compiled modules, which `setup.py` puts into one library: what a message touches then lies together."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from types import ModuleType
from typing import Final

#: compiled from the same `.py` that runs uncompiled, or from the `.pyx` beside it
COMPILED: Final = (
    "bccnd.native.counts",
    "bccnd.native.slots",
    "bccnd.native.slice_dict",
    "bccnd.native.header",
    "bccnd.native.hmac8",
    "bccnd.native.inflight",
    "bccnd.native.poller",
    "bccnd.native.sockio",
    "bccnd.native.scan",
    "bccnd.native.spare_bytes",
    "bccnd.core.fanout_groups",
    "bccnd.core.integrity_algorithms",
    "bccnd.core.counters",
    "bccnd.core.deliveries",
    "bccnd.core.latency_histogram",
    "bccnd.core.local_identities",
    "bccnd.core.dedup",
    "bccnd.core.frames",
    "bccnd.core.ingress",
    "bccnd.core.integrity",
    "bccnd.core.anonymous_dedup",
    "bccnd.core.bccn1",
    "bccnd.core.egress",
    "bccnd.core.source_table",
    "bccnd.core.pattern_tree",
    "bccnd.core.receivers",
    "bccnd.core.routes",
    "bccnd.core.sender_counts",
    "bccnd.core.targets",
    "bccnd.core.user_quota",
    "bccnd.bus.client",
    "bccnd.bus.fanout",
    "bccnd.bus.input_transaction",
    "bccnd.bus.packet_reader",
    "bccnd.bus.publisher",
    "bccnd.bus.segment_reader",
    "bccnd.bus.send_queues",
    "bccnd.net.loop",
    "bccnd.net.segment_sender",
    "bccnd.net.transmitter",
)
#: the library that exports the start of each of them, without the end that this Python's extensions have
LIBRARY: Final = "bccnd/_compiled"


class LibraryFinder:
    """A finder of modules for `sys.meta_path`; see "Multiple modules in one library" in PEP 489."""

    def __init__(self, library: str) -> None:
        self._library = library

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in COMPILED:
            return None
        spec = ModuleSpec(name, ExtensionFileLoader(name, self._library), origin=self._library)
        spec.has_location = True
        return spec


def install() -> None:
    """Have the compiled modules imported from the library, if there is one for this Python."""
    root = os.path.dirname(os.path.dirname(__file__))
    library = os.path.join(root, LIBRARY + EXTENSION_SUFFIXES[0])
    if os.path.exists(library):
        sys.meta_path.insert(0, LibraryFinder(library))
