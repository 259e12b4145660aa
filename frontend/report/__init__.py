"""What a user sees: explain, reports, dumps, reproducers."""
