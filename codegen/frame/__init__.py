"""What lines of a host program are written with: its frame, its values, the GPUs that it uses."""
