"""Defines what tasks pass to each other: columns of rows, runs of sources, spans of time."""
