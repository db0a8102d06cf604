"""Commands that publish and print messages."""
