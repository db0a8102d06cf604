"""Reads segments and clients, publishes, and blocks publishers."""
