"""From TorchDynamo's graph to ATen graphs: AOTAutograd, and rewrites before and after it."""
