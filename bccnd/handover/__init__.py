"""State that outlives the process: descriptors kept by systemd, the log of each client, what is restored of them."""
