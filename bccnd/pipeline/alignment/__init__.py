"""Decides which epoch of its source each row belongs to, for all hosts alike."""
