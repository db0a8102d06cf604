"""The frames that a batch of datagrams brings to clients, in order."""

from __future__ import annotations

from collections.abc import Iterator

from bccnd.core.matching.receivers import NO_RECEIVERS, Receivers


class Deliveries:
    """Frames, each with the receivers that get it. It is used again for the next batch: ``count`` of the places of
    ``receivers`` and ``frames`` are in use."""

    __slots__ = ("count", "frames", "receivers")

    def __init__(self) -> None:
        self.count = 0
        self.receivers: list[Receivers] = []
        self.frames: list[bytes] = []

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[Receivers, bytes]]:
        return zip(self.receivers[: self.count], self.frames, strict=False)

    def put(self, receivers: Receivers, frame: bytes) -> None:
        if self.count == len(self.frames):
            self.receivers.append(receivers)
            self.frames.append(frame)
        else:
            self.receivers[self.count], self.frames[self.count] = receivers, frame
        self.count += 1

    def clear(self) -> None:
        for number in range(self.count):
            self.receivers[number], self.frames[number] = NO_RECEIVERS, b""
        self.count = 0
