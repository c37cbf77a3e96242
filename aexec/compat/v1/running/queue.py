"""`tf.queue`: the namespace of queues.

Next to read: `coordination.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

__getattr__, __dir__ = namespace(
    __name__,
    {
        name: f"running.coordination:{name}"
        for name in "FIFOQueue PaddingFIFOQueue PriorityQueue RandomShuffleQueue".split()
    },
)
