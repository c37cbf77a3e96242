"""Graphs: nodes and edges, import and export, functions, pruning and control-flow analysis."""
