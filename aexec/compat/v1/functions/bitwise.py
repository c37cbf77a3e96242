"""`tf.bitwise`: the namespace of bitwise functions of integers."""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{
            name: f"ops:{name} | x y name"
            for name in "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()
        },
        "invert": "ops:invert | x name",
    },
)
