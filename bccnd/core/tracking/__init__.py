"""Tracks each source: sequence numbers, restarts, losses, and whether it is alive."""
