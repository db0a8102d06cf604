"""A daemon in this process, whose loop the test turns."""

from __future__ import annotations

import gc
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bccnd.config import load
from bccnd.daemon import Daemon
from bccnd.net.service_manager import ServiceManager
from tests.limits import descriptors


@contextmanager
def daemon_in_process(path: Path, settings: dict[str, Any], manager: ServiceManager | None = None) -> Iterator[Daemon]:
    """Write a configuration, and make its daemon; what it leaves in this process is put right at the end."""
    path.write_text(json.dumps(settings))
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    opened = descriptors()
    daemon = Daemon(load(str(path)), str(path), manager=manager)
    try:
        yield daemon
    finally:
        daemon.close()
        gc.unfreeze()
        gc.enable()
        # A daemon has the memory of its sources until its process ends.
        for descriptor in descriptors() - opened:
            with suppress(OSError):  # it was that of the look
                os.close(int(descriptor))
        for number, handler in before.items():
            signal.signal(number, handler)
