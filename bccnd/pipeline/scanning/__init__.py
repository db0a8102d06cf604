"""Reads the files of a journal once, and emits the records that all tables are made of."""
