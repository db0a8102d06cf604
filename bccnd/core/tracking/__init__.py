"""Keeps what is known of each source: sequence numbers, restarts, losses, and whether it is alive."""
