"""Cython primitives, each with a plain Python twin."""
