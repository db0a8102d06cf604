"""Primitives on memory that may outlive the process: slots, counters, the input in progress."""
