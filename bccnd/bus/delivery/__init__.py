"""Sends messages to clients, and queues those for which a socket has no room."""
