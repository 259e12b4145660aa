"""What a user sees: explain, reports, captures, reproducers."""
