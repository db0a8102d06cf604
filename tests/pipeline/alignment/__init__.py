"""Tests of bccnd/pipeline/alignment."""
