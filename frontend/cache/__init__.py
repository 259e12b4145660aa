"""Compiled graphs, traces and answers in the disk cache; what is kept of parameters."""
