"""The shape function of `training_ops`: all optimisers follow one pattern."""

from __future__ import annotations

from aexec.framework import dtypes, errors
from aexec.framework.shape_functions.shape_inference import InferenceContext, Shape

_GRADIENTS = frozenset({"grad", "delta"})
_CHECKED = frozenset({"ResourceApplyGradientDescent", "ResourceApplyProximalAdagrad"})


def apply_update(c: InferenceContext) -> None:
    """Variable and slots have one shape, the gradient too (or rows of it, with indices); the rest are scalars.

    Slots are the inputs that are references or handles.  As in TensorFlow, the gradient of a variable
    behind a handle is left to the kernel, but for two ops.
    """
    inputs = c.op_def.inputs
    by_handle = inputs[0].type is dtypes.resource and c.op_def.name not in _CHECKED
    shape = _value_shape(c, 0)
    for index, arg in enumerate(inputs):
        if arg.name in _GRADIENTS:
            if by_handle:
                if inputs[index + 1 : index + 2] and inputs[index + 1].name == "indices":
                    c.with_rank(c.input(index + 1), 1)
                continue
            sparse = index + 1 < len(inputs) and inputs[index + 1].name == "indices"
            shape = _merge_sparse_gradient(c, shape, index) if sparse else c.merge(shape, _value_shape(c, index))
        elif arg.is_ref or arg.type is dtypes.resource:
            shape = c.merge(shape, _value_shape(c, index))
        elif arg.name != "indices" and not (arg.name == "lr_power" and "FtrlV2" in c.op_def.name):
            c.with_rank(c.input(index), 0)
    if c.num_outputs:
        c.set_output(0, shape)


def _value_shape(c: InferenceContext, index: int) -> Shape:
    """The shape of an input, or of the variable that it refers to."""
    data = c.input_handle_shapes_and_types(index)
    if data:
        return data[0].shape
    return c.unknown_shape() if c.op_def.inputs[index].type is dtypes.resource else c.input(index)


def _merge_sparse_gradient(c: InferenceContext, shape: Shape, index: int) -> Shape:
    grad = c.input(index)
    indices = c.with_rank(c.input(index + 1), 1)
    if grad.dims == ():
        raise errors.InvalidArgumentError("Argument grad must not be a scalar. Got grad with rank 0")
    c.merge_dims(c.dim(indices, 0), c.dim(grad, 0))
    return c.merge(shape, c.replace_dim(grad, 0, None))
