"""Commands that show what the daemon, the host and the fleet do, and what is wrong."""
