"""Tests of bccnd/core/formats."""
