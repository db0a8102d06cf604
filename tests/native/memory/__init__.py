"""Tests of bccnd/native/memory."""
