"""The local bus: the SEQPACKET server with its clients, access rules, fan-out and backpressure."""
