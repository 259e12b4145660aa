"""From TorchDynamo's graph to a callable: the backend, AOTAutograd, options, errors."""
