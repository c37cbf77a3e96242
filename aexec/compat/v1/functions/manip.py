"""`tf.manip`: the older namespace of functions that move elements.

Next to read: `array_ops.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"ops:{name}" for name in "batch_to_space_nd reshape roll space_to_batch_nd tile".split()},
        "gather_nd": "ops:gather_nd | params indices name batch_dims! bad_indices_policy",
        "reverse": "functions.array_ops:reverse",
        "scatter_nd": "ops:scatter_nd | indices updates shape bad_indices_policy name",
    },
)
