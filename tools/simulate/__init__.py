"""A simulated fleet: whole daemons under a virtual clock, with faults at random and invariants checked all along."""
