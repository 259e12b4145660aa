"""Passes of the stage lower: launches to functions."""
