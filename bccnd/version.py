"""Which version this is; the one place where it is written."""

VERSION = "2.0.0.dev0"
