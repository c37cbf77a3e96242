"""Graphs cut into pieces: regions that can run as one, and partitions for devices."""
