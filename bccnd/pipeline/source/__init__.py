"""The Spark data sink `bccn`: rows as messages on the bus."""
