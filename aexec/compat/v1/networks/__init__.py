"""The parts of networks: layers, cells, losses, metrics, initializers, distributions and optimisers."""
