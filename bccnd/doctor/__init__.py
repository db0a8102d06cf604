"""A look at a host: facts, gathered from wherever they are; and what they mean, decided from them alone."""
