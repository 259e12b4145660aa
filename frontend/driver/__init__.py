"""The way of a graph on one page, its steps, and what watches them."""
