"""Tests of bccnd/pipeline/source."""
