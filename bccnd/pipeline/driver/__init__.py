"""Runs the steps on Spark: which days are computed, in which order, and what is kept for later runs."""
