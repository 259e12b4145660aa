"""Programs without Python and PyTorch: a graph as C functions in an object file. program.py, object_file.py."""
