"""The catalog of everything that a host drops: what each drop means, and its remedy."""
