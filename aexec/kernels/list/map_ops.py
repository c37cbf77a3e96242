"""TensorMap ops: maps of tensors in variants.  Next to read: `aexec/resources/tensor_map.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.tensor_buffer import dtype_of
from aexec.framework.shape import shape_text
from aexec.framework.waiting.inline_call import check_inline
from aexec.framework.waiting.loop_budget import COPY_NS
from aexec.framework.wire import variant
from aexec.kernels.common.allocation import allocator
from aexec.kernels.common.printing import head_text
from aexec.kernels.common.variants import add_tensors, boxed, is_of_type, variant_text
from aexec.resources.tensor_map import TensorMap

__all__: list[str] = []

# Nanoseconds that an item takes to be copied to another map, and a key to be stacked.
_ITEM_NS, _ROW_NS = 30.0, 200.0
# Nanoseconds to add two values.
_SUM_NS = 1500.0
# Elements of a key that messages show.
_SHOWN = 100


def _the_map(tensor: Any) -> TensorMap:
    if tensor.ndim:
        raise errors.InvalidArgumentError(f"Input map must be a scalar. Saw: {shape_text(tensor.shape)}")
    value = tensor[()]
    if not isinstance(value, TensorMap):
        raise errors.InvalidArgumentError(f"Input handle is not a map. Saw: '{variant_text(value)}'")
    return value


def _not_there(doing: str, key: Any) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f'Trying to {doing}. Could not find key "{head_text(np.asarray(key), _SHOWN)}".')


@kernel("EmptyTensorMap", cost=0)
def empty_tensor_map(c: OpKernelConstruction) -> Compute:
    return lambda: boxed(TensorMap())


@kernel("TensorMapSize", cost=0)
def tensor_map_size(c: OpKernelConstruction) -> Compute:
    return lambda handle: np.int32(len(_the_map(handle)))


@kernel("TensorMapHasKey", cost=0)
def tensor_map_has_key(c: OpKernelConstruction) -> Compute:
    return lambda handle, key: np.bool_(key in _the_map(handle))


@kernel("TensorMapLookup", cost=0)
def tensor_map_lookup(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("value_dtype")

    def compute(handle: Any, key: Any) -> Any:
        value = _the_map(handle).get(key)
        if value is None:
            raise _not_there("lookup non-existent key", key)
        if not is_of_type(value, dtype):
            raise errors.InvalidArgumentError(
                f"Output 0 of type {dtype_of(value)} does not match declared output type {dtype} for node "
                f"{{{{node {c.name}}}}}"
            )
        return value

    return compute


@kernel("TensorMapInsert", cost=0)
def tensor_map_insert(c: OpKernelConstruction) -> Compute:
    def compute(handle: Any, key: Any, value: Any) -> Any:
        values = _the_map(handle)
        check_inline(len(values) * _ITEM_NS)
        return boxed(values.with_item(key, value))

    return compute


@kernel("TensorMapErase", cost=0)
def tensor_map_erase(c: OpKernelConstruction) -> Compute:
    def compute(handle: Any, key: Any) -> Any:
        values = _the_map(handle)
        if key not in values:
            raise _not_there("erase non-existent item", key)
        check_inline(len(values) * _ITEM_NS)
        return boxed(values.without(key))

    return compute


@kernel("TensorMapStackKeys", cost=0)
def tensor_map_stack_keys(c: OpKernelConstruction) -> Compute:
    dtype, allocate = c.attr("key_dtype"), allocator(c)

    def compute(handle: Any) -> Any:
        keys = _the_map(handle).keys
        if not keys:
            raise errors.InvalidArgumentError("TensorMapStackKeys cannot be called on empty map.")
        shape = keys[0].shape
        check_inline(len(keys) * (_ROW_NS + keys[0].nbytes * COPY_NS))
        if not all(is_of_type(key, dtype) for key in keys):
            raise errors.InvalidArgumentError("Key does not match requested dtype.")
        if any(key.shape != shape for key in keys):
            raise errors.InvalidArgumentError("Keys must all have the same shape.")
        out = allocate((len(keys), *shape))
        for index, key in enumerate(keys):
            out[index] = key[()]
        return out

    return compute


# ZerosLike and AddN of maps in variants


def _add(first: TensorMap, second: TensorMap) -> TensorMap:
    """The items of both maps; the values of a common key are added."""
    check_inline(_SUM_NS * (len(first) + len(second)))
    items = dict(first.items)
    for identity, (key, value) in second.items.items():
        known = items.get(identity)
        items[identity] = (key, value if known is None else add_tensors(value, known[1]))
    return TensorMap(items)


variant.register_unary_op("ZEROS_LIKE", "CPU", TensorMap, lambda _: TensorMap())
variant.register_binary_op("ADD", "CPU", TensorMap, _add)
