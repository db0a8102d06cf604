"""Files that released versions have written, and the program that records a daemon's state."""
