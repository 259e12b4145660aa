"""Ops that move elements and compute none."""
