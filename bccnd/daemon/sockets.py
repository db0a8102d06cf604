"""Opens the sockets of the configuration: segments and those that local programs connect to.

Each is closed, and a socket file removed, by the ``cleanup`` that it is pushed on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from bccnd import log
from bccnd.bus.client_acceptor import Entrance
from bccnd.bus.clients.access_rules import Admission, admit_all, by_mode
from bccnd.config import Configuration, Settings
from bccnd.core.formats.bus_address import read_address
from bccnd.core.matching.patterns import DIALECTS
from bccnd.errors import StartError
from bccnd.net.loop import EXHAUSTED
from bccnd.net.segment import Segment, SegmentOptions
from bccnd.net.socket_activation import ActivatedSockets


@contextmanager
def explain_exhaustion() -> Iterator[None]:
    """Raise StartError where the system lacks descriptors or memory."""
    try:
        yield
    except OSError as error:
        if error.errno not in EXHAUSTED:
            raise
        raise StartError(
            "no_resources",
            f"the system lacks resources for the start: {error.strerror}",
            "raise LimitNOFILE= or MemoryMax= of the service, or find the programs that use so many (free, lsof)",
        ) from error


def open_segments(
    sockets: ActivatedSockets, settings: Settings, cleanup: ExitStack, logged_drops: Callable[[str], int | None]
) -> list[Segment]:
    wanted = [
        SegmentOptions(**segment.model_dump(exclude={"name"}), name=segment.label, largest=settings.max_datagram)
        for segment in settings.segments
    ]
    buses = [one.path for one in settings.bus.all_sockets]
    sockets.assign(buses, wanted, metrics=settings.metrics.listen is not None)
    segments = []
    for options in wanted:
        segment = sockets.open_segment(options, logged_drops(options.name))
        cleanup.callback(segment.close)
        segments.append(segment)
        log.repeats.resume(("socket_drops", "socket_drops", options.name), segment.logged_drops)
        for warning in segment.warnings:
            text, _, remedy = warning.partition(". Remedy: ")
            setting = "segments.receive_buffer"
            log.event("doubtful_setting", text, remedy=remedy, setting=setting, segment=options.name)
    return segments


def open_entrances(sockets: ActivatedSockets, configuration: Configuration, cleanup: ExitStack) -> list[Entrance]:
    entrances = []
    for settings in configuration.settings.bus.all_sockets:
        address = read_address(settings.path)
        gid = configuration.gids[settings.group] if settings.group is not None else None
        listener, created = sockets.open_bus(settings.path, settings.mode, gid)
        if created and isinstance(address, str):
            cleanup.callback(_remove_file, address, os.stat(address).st_ino)
        cleanup.callback(listener.close)
        admits: Admission = admit_all
        if isinstance(address, bytes):  # an abstract address has no file whose mode the kernel could check
            admits = by_mode(settings.mode, os.geteuid(), os.getegid() if gid is None else gid)
        entrances.append(Entrance(listener, DIALECTS[settings.dialect], admits))
    return entrances


def _remove_file(path: str, inode: int) -> None:
    """Remove a socket file unless another one has been put in its place."""
    with suppress(FileNotFoundError):
        if os.stat(path).st_ino == inode:
            os.unlink(path)
