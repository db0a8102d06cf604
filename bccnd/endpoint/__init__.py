"""For programs that speak on the segment themselves, without a daemon."""
