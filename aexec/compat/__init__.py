"""Other libraries' names over ours, for programs that move over.

`v1/` has those of TensorFlow's graph mode.  Nothing else in aexec imports this package.
"""

__all__: list[str] = []
