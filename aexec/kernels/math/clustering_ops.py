"""Kernels of clustering: the centres nearest to each point.

Next to read: `matmul_ops.py`, whose products take most of the time.
"""

from __future__ import annotations

from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.kernels.common.allocation import allocator
from aexec.kernels.math.matmul_ops import product_ns

__all__: list[str] = []

# Distances in memory at a time; there is one for each point and centre.
_BLOCK = 1 << 20
# Nanoseconds per distance to find the least.
_SORT_NS = 30.0


def _cost(points: Any, centers: Any, _k: Any) -> float:
    return product_ns(points, centers) + _SORT_NS * float(points.shape[0] * centers.shape[0])


def _check(points: Any, centers: Any, k: Any) -> None:
    for name, matrix in (("points", points), ("centers", centers)):
        if matrix.ndim != 2:
            raise errors.InvalidArgumentError(f"Input {name} should be a matrix.")
    if k.ndim:
        raise errors.InvalidArgumentError("Input k should be a scalar.")
    if not len(points):
        raise errors.InvalidArgumentError("Expected points.rows() > 0.")
    if points.shape[1] != centers.shape[1]:
        raise errors.InvalidArgumentError(
            f"Expected point_dimensions == center_dimensions: {points.shape[1]} vs {centers.shape[1]}."
        )
    if k < 0:
        raise errors.InvalidArgumentError(f"Expected k >= 0, got {int(k)}")


@kernel("NearestNeighbors", cost=_cost, scratch=16)
def nearest_neighbors(c: OpKernelConstruction) -> Compute:
    """Return indices and squared distances [n, min(k, m)] of the centres [m, d] nearest to each point [n, d], nearest
    first.

    Of equally distant centres the one with the lower index comes first.
    """
    xp = c.xp
    allocators = [allocator(c, output) for output in range(2)]

    def nearest(points: Any, centers: Any, center_norms: Any, k: int) -> tuple[Any, Any]:
        # Half of each squared distance, without the point's own term, which does not affect the order.
        halves = center_norms - xp.matmul(points, centers.T)
        indices = halves.argmin(axis=1)[:, None] if k == 1 else halves.argsort(axis=1, kind="stable")[:, :k]
        point_norms = xp.square(points).sum(axis=1, keepdims=True) / 2
        return indices, 2 * (point_norms + xp.take_along_axis(halves, indices, axis=1))

    def compute(points: Any, centers: Any, k: Any) -> Any:
        _check(points, centers, k)
        count = min(int(k), len(centers))
        indices, distances = (allocate((len(points), count)) for allocate in allocators)
        if count:
            rows = max(1, _BLOCK // len(centers))
            # The norms, and for a block the products and their temporaries: centres without elements may be any number.
            announce_scratch(2 * (1 + min(rows, len(points))) * len(centers) * points.itemsize)
            norms = xp.square(centers).sum(axis=1) / 2
            for start in range(0, len(points), rows):
                check_wanted()
                block = slice(start, start + rows)
                indices[block], distances[block] = nearest(points[block], centers, norms, count)
        return indices, distances

    return compute
