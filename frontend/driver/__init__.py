"""The way of a graph on one page: the backend that Dynamo calls, the steps, and what is attached to them."""
