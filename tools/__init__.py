"""Tools for those that work on bccnd; none of them is part of the package."""
