"""What a user sees of a graph: logs, reports, captures, errors with a file that reproduces them."""
