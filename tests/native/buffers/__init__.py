"""Tests of bccnd/native/buffers."""
