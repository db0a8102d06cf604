"""Keeps the state of each client: its connection, rights, identity and subscriptions."""
