"""Ops with regions, branches and loops: what they are, and how they are interpreted."""
