"""The Spark data source `bccn`: journals and captures as tables and streams, and rows as messages on the bus."""
