"""What the daemon knows of each client: its connection, rights, identity and subscriptions."""
