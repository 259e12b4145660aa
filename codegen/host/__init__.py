"""The host program: one native function that runs a graph."""
