"""Mutation testing: small faults put into a module, one at a time, which the tests must find."""
