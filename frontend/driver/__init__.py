"""The way of a graph on one page: the steps, and what is attached to them."""
