"""Combines rows into messages, and counts what each host received and missed."""
