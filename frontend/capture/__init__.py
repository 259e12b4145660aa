"""From TorchDynamo's graph to ATen graphs: the backend, AOTAutograd, rewrites of both."""
