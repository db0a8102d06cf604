"""Real daemons, real sockets, real clients."""
