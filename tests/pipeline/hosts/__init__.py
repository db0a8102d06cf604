"""Tests of bccnd/pipeline/hosts."""
