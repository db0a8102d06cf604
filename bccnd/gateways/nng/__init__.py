"""Links to bridges of other segments, over NNG BUS."""
