"""Cython primitives, each with a plain Python twin of the same interface."""
