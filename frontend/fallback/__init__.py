"""Eager in place of mlirc where anything of ours fails, counted and shown."""
