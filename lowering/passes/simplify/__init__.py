"""Passes of the stage simplify: graph to graph."""
