"""The events that a gateway in this process logs."""

from __future__ import annotations

import logging
from typing import Any


class Events(logging.Handler):
    """Keeps every event until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, str, dict[str, Any]]] = []
        logger = logging.getLogger("bccnd")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "event"):
            self.records.append((record.event, record.getMessage(), record.__dict__["fields"]))

    def texts(self, event: str) -> list[str]:
        return [text for name, text, _ in list(self.records) if name == event]

    def close(self) -> None:
        logging.getLogger("bccnd").removeHandler(self)
        super().close()
