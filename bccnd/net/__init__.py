"""Event loop, sockets, HTTP, child processes and the service manager."""
