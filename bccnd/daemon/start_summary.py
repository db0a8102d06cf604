"""The lines about a daemon that is ready, or has reloaded: what it serves and from where, and its keys."""

from __future__ import annotations

from collections.abc import Sequence

from bccnd.config import RECEIVE_ONLY, Configuration, Settings
from bccnd.net.segment import Segment
from bccnd.net.socket_activation import ActivatedSockets


def start_summary(
    settings: Settings, segments: Sequence[Segment], metrics_urls: Sequence[str], sockets: ActivatedSockets
) -> str:
    parts = [
        f"segment {', '.join(segment.options.name for segment in segments) or 'no segment'}",
        f"bus {', '.join(one.path for one in settings.bus.all_sockets)}",
        f"integrity {settings.integrity.algorithm}",
        f"metrics {', '.join(metrics_urls) or 'off'}",
    ]
    if settings.integrity.receive_only:
        parts.append(RECEIVE_ONLY)
    if sockets.served:
        parts.append(f"from systemd: {', '.join(sockets.served)}")
    return "; ".join(parts)


def integrity_summary(configuration: Configuration) -> str:
    integrity = configuration.settings.integrity
    text = f"integrity {integrity.algorithm} with {len(configuration.keys)} keys"
    if integrity.algorithm == "sig":
        text += f" and the public keys of {len(configuration.signers)} signers"
    return f"{text}; {RECEIVE_ONLY}" if integrity.receive_only else text
