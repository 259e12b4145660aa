"""Puts together what the other folders write: a lowered module as a program, for the disk cache, for people, from a file."""
