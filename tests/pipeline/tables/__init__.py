"""Tests of bccnd/pipeline/tables."""
