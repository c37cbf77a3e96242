"""Kernels that convert dimension numbers and per-dimension vectors from one image layout to another.

A layout is a word with one letter per dimension, such as NHWC.
"""

from __future__ import annotations

from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.kernels.common.registration import INDEX, on_host

__all__: list[str] = []


def _formats(c: OpKernelConstruction) -> tuple[str, str]:
    """The two layouts.  Raises InvalidArgumentError unless they have the same four or five letters."""
    source, target = c.text("src_format"), c.text("dst_format")
    for what, name, layout in (("Source", "src_format", source), ("Destination", "dst_format", target)):
        if len(layout) not in (4, 5):
            raise errors.InvalidArgumentError(f"{what} format must be of length 4 or 5, received {name} = {layout}")
    if sorted(source) != sorted(target) or len(set(source)) != len(source):
        raise errors.InvalidArgumentError(
            f"Destination and source format must determine a permutation, got {source} and {target}"
        )
    return source, target


def data_format_dim_map(c: OpKernelConstruction) -> Compute:
    """Maps dimensions of the source layout to those of the target; negative numbers count from the end."""
    source, target = _formats(c)
    rank = len(source)
    table = c.xp.asarray([target.index(letter) for letter in source], c.output_types[0].np)
    # TensorFlow takes the number modulo the rank.
    return lambda x: table[x % rank]


def data_format_vec_permute(c: OpKernelConstruction) -> Compute:
    """Permutes a vector over the dimensions (or the spatial ones only), or a matrix of pairs, to the target layout."""
    source, target = _formats(c)
    rank = len(source)
    spatial = [letter for letter in source if letter not in "NC"]
    whole = c.xp.asarray([source.index(letter) for letter in target])
    inner = c.xp.asarray([spatial.index(letter) for letter in target if letter not in "NC"])
    order = {rank: whole, len(inner): inner}

    def compute(x: Any) -> Any:
        if x.ndim not in (1, 2):
            raise errors.InvalidArgumentError(
                f"input must be a vector or 2D tensor, but got shape {shape_text(x.shape)}"
            )
        if len(x) not in order:
            what = "1D input" if x.ndim == 1 else "First dimension of 2D input"
            raise errors.InvalidArgumentError(
                f"{what} must be of size {rank - 2} or {rank}, but got shape {shape_text(x.shape)}"
            )
        if x.ndim == 2 and x.shape[1] != 2:
            raise errors.InvalidArgumentError(
                f"Second dimension of 2D input must be of size 2, but got shape {shape_text(x.shape)}"
            )
        return x[order[len(x)]]

    return compute


# Bytes per element for numbers within the table's bounds, and for indices made of them.
_SCRATCH = 12

for _op, _builder in (
    ("DataFormatDimMap", data_format_dim_map),
    ("DataFormatVecPermute", data_format_vec_permute),
):
    kernel(_op, T=INDEX, scratch=_SCRATCH)(_builder)
    kernel(_op, T=INDEX, scratch=_SCRATCH, label="host")(_builder)
    _of_host = on_host(_builder)
    kernel(_op, T=INDEX, scratch=_SCRATCH, label="host", device="DEFAULT", host_memory=("x", "y"))(_of_host)
