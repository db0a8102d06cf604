"""Lets the loop of a test run in a thread, for clients that block."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bccnd.net.loop import READABLE, Loop
from tests.support import PATIENCE

Do = Callable[[Callable[[], object]], None]


@contextmanager
def turning(loop: Loop) -> Iterator[Do]:
    """Let the loop run in a thread of its own, for clients that block.

    Gives a function that has something done by that thread, between two callbacks, and waits for it.
    """
    reader, writer = os.pipe()
    asked: deque[tuple[Callable[[], object], threading.Event]] = deque()
    faults: list[BaseException] = []

    def on_asked(_events: int) -> None:
        os.read(reader, 1)
        call, done = asked.popleft()
        try:
            call()
        finally:
            done.set()

    def do(call: Callable[[], object]) -> None:
        done = threading.Event()
        asked.append((call, done))
        os.write(writer, b"x")
        assert done.wait(PATIENCE), "the loop does not turn any more"

    def run() -> None:
        try:
            loop.run()
        except BaseException as fault:  # noqa: BLE001 -- it belongs to the test, which is in another thread
            faults.append(fault)

    loop.watch(reader, READABLE, on_asked)
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield do
    finally:
        if thread.is_alive():
            do(loop.stop)
        thread.join()
        loop.unwatch(reader)
        os.close(reader)
        os.close(writer)
    if faults:
        raise faults[0]
