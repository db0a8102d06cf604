"""This host's sockets, HTTP and log: the edge, where bytes come from and go to."""
