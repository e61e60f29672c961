"""The nouns of dethpc and the ports to the world. Pure: no I/O, clock, threads or global randomness."""
