"""The gateway to the TCP broker's publishers and subscribers."""
