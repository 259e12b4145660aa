"""Verifiers: what they accept reads and writes within its buffers, whoever wrote the module."""
