"""Checks of a host: probes read its state, and checks decide from that alone."""
