"""Counts and measures, for metrics and pages."""
