"""What programs import of `tensorflow.python.tools`: frozen graphs, graphs cut to their use, what is in a checkpoint.

Next to read: `freeze_graph.py`.
"""
