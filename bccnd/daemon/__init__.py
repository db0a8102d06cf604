"""The daemon, assembled from the parts in the other packages; start reading at `daemon.py`."""

from bccnd.daemon.daemon import Daemon

__all__ = ["Daemon"]
