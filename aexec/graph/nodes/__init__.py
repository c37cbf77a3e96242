"""Nodes, tables of nodes, and how they are walked: what all of the graph is built on."""
