"""Ways to other messaging worlds: adapters that run beside the daemon, each a process of its own."""
