"""Complex numbers as pairs of real ones, and their operators as those of parts."""
