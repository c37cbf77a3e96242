"""Values and shapes that are known while the graph is built.

Next to read: `aexec/graph/constant_evaluation.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.compat.v1.values.shapes import TensorShape
from aexec.framework.shape import PartialTensorShape
from aexec.framework.shape_functions.shape_inference import ShapeManager
from aexec.graph.constant_evaluation import Allowance, ConstantEvaluator
from aexec.graph.nodes.node import Tensor

__all__ = ["get_static_value", "shape_of_vector"]


def get_static_value(tensor: Any, partial: bool = False) -> Any:
    """`tf.get_static_value`: an array, or None if the value depends on the run."""
    return _evaluator(tensor).value(*tensor.endpoint) if isinstance(tensor, Tensor) else tensor


def shape_of_vector(sizes: Tensor) -> TensorShape:
    """The partial shape that a vector tensor of sizes denotes, as far as it is known."""
    known = _evaluator(sizes).partial_shape(*sizes.endpoint)
    return TensorShape(PartialTensorShape(None if known.dims is None else list(known)))


def _evaluator(tensor: Tensor) -> ConstantEvaluator:
    return ConstantEvaluator(tensor.graph.nodes.__getitem__, ShapeManager(), None, Allowance())
