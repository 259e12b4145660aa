"""Functions of a graph of Dynamo's that are written in another way before AOTAutograd traces them."""
