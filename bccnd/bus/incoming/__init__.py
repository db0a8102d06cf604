"""Reads segments and clients, publishes, and holds publishers back."""
