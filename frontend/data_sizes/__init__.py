"""Graphs whose sizes depend on data, in subgraphs."""
