"""Calls of ATen: by the C shim, by the dispatcher, from Python."""
