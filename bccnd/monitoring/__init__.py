"""What operators see of the daemon: metrics, status page, drop catalog."""
