"""The tables, each made by one pure function from frames to a frame; compute.py says what goes into which."""
