"""Primitives on bytes, without a copy: search, HMAC, a dictionary by slice, memory that is reused."""
