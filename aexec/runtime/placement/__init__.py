"""Placement: which device each node of a graph runs on."""
