"""Other machines of the run, whose blocks are asked for before the origin is."""
