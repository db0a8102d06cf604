"""The configuration file. Every limit is in the schema, with its default and the reason for it."""

import os

# Looking for plugins of pydantic takes time and memory, and none of them is ours.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from bccnd.config.gateway_schema import BrokerSettings, NngSettings, TlsSettings
from bccnd.config.loading import Configuration, load, read, read_recorder
from bccnd.config.recorder_schema import RecorderSettings
from bccnd.config.schema import RECEIVE_ONLY, SegmentSettings, Settings

__all__ = [
    "RECEIVE_ONLY",
    "BrokerSettings",
    "Configuration",
    "NngSettings",
    "RecorderSettings",
    "SegmentSettings",
    "Settings",
    "TlsSettings",
    "load",
    "read",
    "read_recorder",
]
