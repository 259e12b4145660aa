"""ONNX models as modules of PyTorch's operators, which `mlirc.compile` then exports like any other. model_file.py, graph_module.py."""
