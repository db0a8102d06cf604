"""The tables, each made by one pure function from frames to a frame; compute.py has the inputs of each."""
