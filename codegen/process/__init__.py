"""Threads of ours, and what this process may have: stack, addresses, forks."""
