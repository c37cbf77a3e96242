"""`tf.losses`: the namespace of losses.

Next to read: `aexec/losses.py`.
"""

from __future__ import annotations

from aexec import losses
from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"aexec.losses:{name}" for name in losses.__all__},
        "cosine_distance": """aexec.losses:cosine_distance | labels predictions axis weights scope loss_collection
        reduction dim=axis""",
    },
)
