"""Schema of ``recorder``, which is a service of its own."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from bccnd.config.values import Bytes, File, Listen, Seconds, Section, Text, as_tuple, refuse
from bccnd.core.formats.quoting import quote


def parse_payload_rules(value: object) -> object:
    """Parse ``true``, ``false``, ``hash``, or a list of rules."""
    for short, payload in ((True, "record"), (False, "omit"), ("hash", "hash")):
        if value is short or (isinstance(value, str) and value == short):
            return ({"payload": payload},)
    if not isinstance(value, list | tuple):
        remedy = 'write true, false, hash, or a list of rules like [{channels: "door/", payload: hash}]'
        raise refuse(f"{quote(value)} is not a rule for payloads", remedy)
    return as_tuple(value)


class PayloadSettings(Section):
    """What is recorded of the payloads of some channels; without ``channels``, of all others."""

    channels: Text = Field(default="", max_length=1024)
    payload: Literal["record", "hash", "omit"]


class KeepSettings(Section):
    """Age and size up to which the journal is kept; 0: without limit."""

    age: Seconds = Field(default=0.0)
    size: Bytes = Field(default=0)


class RecorderMetricsSettings(Section):
    """The recorder's metrics."""

    listen: Listen = None


class RecorderSettings(Section):
    """The recorder: where it writes, how often, how much."""

    #: a folder, or a URI of pyarrow.fs
    journal: File = Field(default="/var/lib/bccnd/journal", min_length=1)
    #: host in the records; without it, that of the daemon
    host: Text | None = None
    spool: File | None = Field(default=None, min_length=1)
    #: limit of what waits for the journal: hours of a busy segment, without filling the disk
    spool_size: Bytes = Field(default=1 << 30, ge=1 << 20)
    #: readers of the journal wait ten minutes for new records, and a day has 144 files
    rotate: Seconds = Field(default=600.0, ge=1, le=86_400)
    #: of the log, which is a few times larger than the file made from it
    rotate_size: Bytes = Field(default=64 << 20, ge=64 << 10, le=1 << 30)
    keep: KeepSettings = KeepSettings.model_construct()
    #: the first rule that matches a channel decides
    payload: Annotated[tuple[PayloadSettings, ...], BeforeValidator(parse_payload_rules)] = Field(
        default=(PayloadSettings(payload="record"),), max_length=1000
    )
    metrics: RecorderMetricsSettings = RecorderMetricsSettings.model_construct()

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str | None) -> str | None:
        if host is not None and (not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", host) or host in (".", "..")):
            raise refuse(f"{quote(host)} cannot be part of a path in the journal", "use letters, digits, . _ and -")
        return host

    @model_validator(mode="after")
    def _check_spool_size(self) -> RecorderSettings:
        if self.spool_size < 2 * self.rotate_size:
            raise refuse(
                "the spool is too small for two logs",
                "set spool_size to at least twice rotate_size, or lower rotate_size",
            )
        return self
