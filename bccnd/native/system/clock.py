"""The clocks of the standard library; compiled modules read them without Python objects (clock.pxd)."""

from time import monotonic, time_ns

__all__ = ["monotonic", "time_ns"]
