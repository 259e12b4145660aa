"""What a forward graph saves and a backward graph recomputes."""
