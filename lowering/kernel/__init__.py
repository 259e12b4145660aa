"""What both targets read of a kernel."""
