"""`tf.version`: the version of TensorFlow whose functions this package has, and the version of graphs.

`tf.__version__` is aexec's.
"""

from __future__ import annotations

from aexec.framework.versions import GRAPH_DEF_VERSION, GRAPH_DEF_VERSION_MIN_PRODUCER

__all__ = [
    "COMPILER_VERSION",
    "GIT_VERSION",
    "GRAPH_DEF_VERSION",
    "GRAPH_DEF_VERSION_MIN_CONSUMER",
    "GRAPH_DEF_VERSION_MIN_PRODUCER",
    "VERSION",
]

VERSION = "2.21.0"
GIT_VERSION = COMPILER_VERSION = "unknown"
GRAPH_DEF_VERSION_MIN_CONSUMER = 0
