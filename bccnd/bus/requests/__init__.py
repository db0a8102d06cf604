"""Carries out control messages: of programs, gateways and recorders."""
