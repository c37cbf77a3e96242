"""What networks are made of: layers, cells, losses, metrics, initializers, distributions and optimisers."""
