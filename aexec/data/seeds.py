"""`seeds_of`: the two seeds of a dataset with randomness, by the rules of random ops."""

from __future__ import annotations

from typing import Any

from aexec import ops
from aexec.client.random_seed import get_seed
from aexec.framework.dtypes import int64
from aexec.graph.nodes.node import Tensor
from aexec.graph.op_functions import convert_to_tensor

__all__ = ["seeds_of"]

_LARGEST = 2**31 - 1


def seeds_of(seed: Any) -> tuple[Tensor, Tensor]:
    """Tensors for the inputs `seed` and `seed2`; both are 0 if neither the graph nor the dataset has a seed.

    Args:
        seed: None, an int, or a scalar int64 tensor.
    """
    if not isinstance(seed, Tensor):
        numbers = get_seed(seed)
        return convert_to_tensor(numbers[0], int64, "seed"), convert_to_tensor(numbers[1], int64, "seed2")
    first = convert_to_tensor(get_seed(0)[0], int64, "seed")
    second = ops.floor_mod(ops.cast(seed, DstT=int64), _LARGEST)
    # Two zeros would mean a random seed.
    none = ops.logical_and(ops.equal(first, 0), ops.equal(second, 0))
    return first, ops.select_v2(none, convert_to_tensor(_LARGEST, int64), second)
