"""The settings that a reload cannot change: sockets and identities are made from them at the start."""

from __future__ import annotations

from collections.abc import Iterator

from bccnd.config.schema import Settings


def settings_needing_restart(old: Settings, new: Settings) -> Iterator[tuple[str, object, object]]:
    """Their keys, with the values before and after."""
    for key in ("host", "names", "segments", "max_datagram"):
        yield key, getattr(old, key), getattr(new, key)
    for key in ("path", "mode", "group", "dialect", "sockets"):
        yield f"bus.{key}", getattr(old.bus, key), getattr(new.bus, key)
    for key in ("listen", "hosts"):
        yield f"metrics.{key}", getattr(old.metrics, key), getattr(new.metrics, key)
