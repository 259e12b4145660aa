"""A graph of ATen's on its way, and what hears of its steps: what every step and observer knows."""
