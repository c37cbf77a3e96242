"""`tf.contrib.slim.losses`: `tf.losses` with the predictions first.

Next to read: `slim.py`.
"""

from __future__ import annotations

from aexec.compat.v1.namespace import namespace

__all__: list[str] = []

_REST = "weights scope"

__getattr__, __dir__ = namespace(
    __name__,
    {
        **{name: f"networks.losses:{name}" for name in "add_loss get_losses get_total_loss".split()},
        **{name: f"networks.losses:{name}" for name in "get_regularization_losses compute_weighted_loss".split()},
        "absolute_difference": f"networks.losses:absolute_difference | predictions labels {_REST}",
        "cosine_distance": "networks.losses:cosine_distance | predictions labels axis weights scope dim=axis",
        "hinge_loss": "networks.losses:hinge_loss | logits labels scope",
        "log_loss": "networks.losses:log_loss | predictions labels weights epsilon scope",
        "mean_pairwise_squared_error": f"networks.losses:mean_pairwise_squared_error | predictions labels {_REST}",
        "mean_squared_error": f"networks.losses:mean_squared_error | predictions labels {_REST}",
        "sigmoid_cross_entropy": """networks.losses:sigmoid_cross_entropy | logits multi_class_labels weights
        label_smoothing scope""",
        "softmax_cross_entropy": """networks.losses:softmax_cross_entropy | logits onehot_labels weights
        label_smoothing scope""",
        "sparse_softmax_cross_entropy": f"networks.losses:sparse_softmax_cross_entropy | logits labels {_REST}",
    },
)
