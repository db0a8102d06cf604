"""Finds the clients that receive a channel: patterns, routes, receivers."""
