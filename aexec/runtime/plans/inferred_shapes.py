"""What shape inference says of the outputs of a plan's nodes, whatever is fed."""

from __future__ import annotations

from functools import cache

from aexec.ops.families import FAMILIES
from aexec.runtime.plans.plan import PlanNode

__all__ = ["Dims", "fully_known", "is_built_in", "partial_shape"]

# Sizes of the dimensions, of which some may be unknown; None where their number is.
Dims = tuple[int | None, ...] | None


@cache
def _built_in() -> frozenset[str]:
    """The ops that are ours; made when a plan is first compiled, not when this is imported."""
    return frozenset(op for ops in FAMILIES.values() for op in ops.split())


def is_built_in(op: str) -> bool:
    """Is it one of our ops?  What the kernels of others give is looked at: it may be no array at all."""
    return op in _built_in()


def partial_shape(node: PlanNode, output: int) -> Dims:
    """What is known of the shape of an output, if the op is built in."""
    shapes = node.node.shapes
    return None if shapes is None or not is_built_in(node.op) else shapes[output].dims


def fully_known(dims: Dims) -> tuple[int, ...] | None:
    """The shape, if every size is known."""
    if dims is None:
        return None
    known = tuple([size for size in dims if size is not None])
    return known if len(known) == len(dims) else None
