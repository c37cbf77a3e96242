"""Code that kernels of several families share; nothing is registered here."""
