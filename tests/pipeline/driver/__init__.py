"""Tests of bccnd/pipeline/driver."""
