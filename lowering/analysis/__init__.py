"""What is known of values before anything runs: ranges, constants, index maps, lifetimes, effects."""
