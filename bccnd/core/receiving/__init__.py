"""Gives each received datagram its verdict, and finds what is delivered."""
