"""Inputs that nobody would think of, and what is held to them."""
