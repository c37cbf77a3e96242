"""The shapes of the outputs of a plan's nodes, as far as shape inference knows them for all feeds."""

from __future__ import annotations

from functools import cache

from aexec.ops.families import FAMILIES
from aexec.runtime.plans.plan import PlanNode

__all__ = ["Dims", "fully_known", "is_built_in", "partial_shape"]

# The sizes of the dimensions, None for an unknown one; None if the rank is unknown.
Dims = tuple[int | None, ...] | None


@cache
def _built_in() -> frozenset[str]:
    """The names of aexec's own ops; made at the first use, not at import."""
    return frozenset(op for ops in FAMILIES.values() for op in ops.split())


def is_built_in(op: str) -> bool:
    """True for aexec's own ops.  Outputs of other ops must be checked: they may not be arrays."""
    return op in _built_in()


def partial_shape(node: PlanNode, output: int) -> Dims:
    """The shape of an output as far as it is known; None for ops that are not built in."""
    shapes = node.node.shapes
    return None if shapes is None or not is_built_in(node.op) else shapes[output].dims


def fully_known(dims: Dims) -> tuple[int, ...] | None:
    """The shape if every size is known, else None."""
    if dims is None:
        return None
    known = tuple([size for size in dims if size is not None])
    return known if len(known) == len(dims) else None
