"""Reaches into TorchDynamo and FX."""
