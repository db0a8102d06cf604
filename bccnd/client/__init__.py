"""For programs: the bus as an object."""
