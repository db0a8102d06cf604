"""What operators see: metrics, the status page, the catalogue of drops."""
