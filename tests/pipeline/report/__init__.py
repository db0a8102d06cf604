"""Tests of bccnd/pipeline/report."""
