"""Which version this is; the one place where it is written."""

VERSION = "1.1.0"
