"""Tests of bccnd/native/system."""
