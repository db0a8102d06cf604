"""Reads and writes other notations: bus addresses, units, captures, certificates, stored records."""
