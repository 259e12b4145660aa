"""Machine code, the host program that runs a graph, and the libraries and caches beside them."""
