"""Gives each received datagram its verdict, and finds its receivers."""
