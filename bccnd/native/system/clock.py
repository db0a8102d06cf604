"""The two clocks of the hot path; compiled modules read them without Python objects (clock.pxd)."""

from time import monotonic, time_ns

__all__ = ["monotonic", "time_ns"]
