"""The configuration file: its schema, its values, reading it, and saying what is wrong with it.

Every limit stands in the schema, with its default and the reason for it.
"""

import os

# Looking for plugins of pydantic takes time and memory, and none of them is ours.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from bccnd.config.gateway_schema import BrokerSettings, GatewaySettings, NngSettings, TlsSettings
from bccnd.config.loading import Configuration, load, read, read_recorder
from bccnd.config.recorder_schema import RecorderSettings
from bccnd.config.schema import (
    AccessSettings,
    BusSettings,
    IntegritySettings,
    RepeatSettings,
    SegmentSettings,
    Settings,
    SocketSettings,
    UserSettings,
)

__all__ = [
    "AccessSettings",
    "BrokerSettings",
    "BusSettings",
    "Configuration",
    "GatewaySettings",
    "IntegritySettings",
    "NngSettings",
    "RecorderSettings",
    "RepeatSettings",
    "SegmentSettings",
    "Settings",
    "SocketSettings",
    "TlsSettings",
    "UserSettings",
    "load",
    "read",
    "read_recorder",
]
