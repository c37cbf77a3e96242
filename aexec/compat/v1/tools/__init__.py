"""The modules of `tensorflow.python.tools` that programs import: they freeze and cut graphs, and print checkpoints.

Next to read: `freeze_graph.py`.
"""
