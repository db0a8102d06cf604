"""What the commands share: options, the connection to the daemon, output, standard streams."""
