"""Reaches into AOTAutograd and autograd."""
