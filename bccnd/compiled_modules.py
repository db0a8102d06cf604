"""Finds the compiled modules, which `setup.py` puts into one library: what a message touches then lies together.

With `BCCND_CORE=python` in the environment only the primitives of `native` are taken from the library. The other
modules run uncompiled: for coverage, mutants and debuggers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from types import ModuleType
from typing import Final

#: compiled from the `.py` of the name, or from the `.pyx`
COMPILED: Final = (
    "bccnd.native.buffers.bus_messages",
    "bccnd.native.buffers.counts",
    "bccnd.native.buffers.datagram",
    "bccnd.native.buffers.dict_by_slice",
    "bccnd.native.buffers.header",
    "bccnd.native.buffers.hmac8",
    "bccnd.native.buffers.sent_datagrams",
    "bccnd.native.system.packet_batch",
    "bccnd.native.system.poller",
    "bccnd.native.system.sockio",
    "bccnd.core.sending.message_groups",
    "bccnd.core.trust.integrity_algorithms",
    "bccnd.core.observing.counters",
    "bccnd.core.receiving.deliveries",
    "bccnd.core.receiving.judgement",
    "bccnd.core.observing.latency_histogram",
    "bccnd.core.tracking.local_identities",
    "bccnd.core.tracking.source",
    "bccnd.core.tracking.dedup",
    "bccnd.core.tracking.tracker_image",
    "bccnd.core.tracking.tracker_limits",
    "bccnd.core.wire.frames",
    "bccnd.core.receiving.ingress",
    "bccnd.core.trust.integrity",
    "bccnd.core.trust.prepared_hmac",
    "bccnd.core.tracking.anonymous_dedup",
    "bccnd.core.wire.bccn1",
    "bccnd.core.sending.datagram_builder",
    "bccnd.core.tracking.source_table",
    "bccnd.core.matching.pattern_tree",
    "bccnd.core.matching.receivers",
    "bccnd.core.matching.routes",
    "bccnd.core.tracking.sender_counts",
    "bccnd.core.wire.directed_targets",
    "bccnd.core.sending.redundancy",
    "bccnd.core.sending.user_quota",
    "bccnd.bus.clients.client",
    "bccnd.bus.delivery.fanout",
    "bccnd.bus.incoming.packet_reader",
    "bccnd.bus.incoming.publisher",
    "bccnd.bus.incoming.segment_reader",
    "bccnd.bus.delivery.client_queues",
    "bccnd.net.loop",
    "bccnd.net.segment_sender",
)
#: the library that exports the start of each of them, without the end that this Python's extensions have
LIBRARY: Final = "bccnd/_compiled"
_PRIMITIVES: Final = "bccnd.native."


class LibraryFinder:
    """A finder of modules for `sys.meta_path`; see "Multiple modules in one library" in PEP 489."""

    def __init__(self, library: str) -> None:
        self._library = library
        self._names = imported()

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        spec = ModuleSpec(name, ExtensionFileLoader(name, self._library), origin=self._library)
        spec.has_location = True
        return spec


def imported() -> tuple[str, ...]:
    """Return the modules that this process takes from the library."""
    if os.environ.get("BCCND_CORE") == "python":
        return tuple([name for name in COMPILED if name.startswith(_PRIMITIVES)])
    return COMPILED


def find_library() -> str:
    """Return the library for this Python, or nothing if it is not installed."""
    root = os.path.dirname(os.path.dirname(__file__))
    library = os.path.join(root, LIBRARY + EXTENSION_SUFFIXES[0])
    return library if os.path.exists(library) else ""


def install() -> None:
    """Have the compiled modules imported from the library, if there is one."""
    if library := find_library():
        sys.meta_path.insert(0, LibraryFinder(library))
