"""Sends messages to clients, and queues what their sockets do not take."""
