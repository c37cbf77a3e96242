"""Kernels: how they are registered, built and called."""
