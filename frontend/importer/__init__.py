"""FX graphs to the dialect."""
