"""Tests of bccnd/core/receiving."""
