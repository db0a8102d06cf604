"""Which version this is; the one place where it is written."""

VERSION = "1.2.0.dev0"
