"""Tests of bccnd/pipeline/scanning."""
