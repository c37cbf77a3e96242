"""Kernels: how they are registered and built, and what they may ask while they run."""
