"""Kernels of clustering: the centres nearest to each point, and the points that k-means begins with.

Next to read: `matmul_ops.py`, whose products take most of the time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.abandoned_calls import check_wanted
from aexec.kernels.common.allocation import allocator
from aexec.kernels.math.matmul_ops import product_ns
from aexec.numerics.philox import Philox, unit_floats

__all__: list[str] = []

# Distances in memory at a time; there is one for each point and centre.
_BLOCK = 1 << 20
# Nanoseconds per distance to find the least.
_SORT_NS = 30.0
# Nanoseconds per step of a Markov chain, and steps at a time.
_STEP_NS = 100.0
_STEPS = 1 << 16
# Nanoseconds per element to update the least distances, and draws of points that were taken before a free one is used.
_LEAST_NS = 10.0
_DRAWS = 1000
_LONG = 0xFFFFFFFFFFFFFFFF


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


# Where k-means begins


class _Draws:
    """The words of a seed's generator, one by one."""

    def __init__(self, seed: int) -> None:
        self._generator, self._block, self._words = Philox.from_seeds(seed, 0), 0, list[int]()

    def _word(self) -> int:
        if not self._words:
            self._words = self._generator.words(self._block, 1)[0].tolist()[::-1]
            self._block += 1
        return self._words.pop()

    def unit(self) -> Any:
        """A float32 in [0, 1)."""
        return unit_floats(np.array([self._word()], np.uint32))[0]

    def below(self, count: int) -> int:
        """An integer in [0, count), of two words."""
        # Without those below this one, none is more frequent than others; a power of two divides all there are.
        least = 0 if count & (count - 1) == 0 else _LONG % count + 1
        while (long := self._word() | self._word() << 32) < least:
            pass
        return long % count


def _scalars(**inputs: Any) -> None:
    for name, value in inputs.items():
        if value.ndim:
            raise errors.InvalidArgumentError(f"Input {name} should be a scalar.")


def _check_sampling(points: Any, num_to_sample: Any) -> None:
    if points.ndim != 2:
        raise errors.InvalidArgumentError("Input points should be a matrix.")
    if not len(points):
        raise errors.InvalidArgumentError("Expected points.rows() > 0.")
    if num_to_sample <= 0:
        raise errors.InvalidArgumentError("Expected num_to_sample > 0.")
    if num_to_sample > len(points):
        raise errors.InvalidArgumentError(
            f"Expected num_to_sample <= points.rows(). {int(num_to_sample)} vs {len(points)}."
        )


def _retries(num_to_sample: Any, num_retries_per_sample: Any) -> int:
    retries = int(num_retries_per_sample)
    return retries if retries >= 0 else 2 + int(math.log(num_to_sample))


def _sampling_cost(points: Any, num_to_sample: Any, _seed: Any, num_retries_per_sample: Any) -> float:
    if points.ndim != 2 or num_to_sample.ndim or num_retries_per_sample.ndim or num_to_sample <= 0:
        return 0.0
    draws = float(num_to_sample) * (1 + _retries(num_to_sample, num_retries_per_sample))
    return draws * (float(points.size) + _LEAST_NS * len(points))


class _Sampling:
    """Points drawn with probabilities in proportion to their squared distances from the nearest point drawn before."""

    def __init__(self, points: Any, seed: int) -> None:
        self._points, self._random = points, _Draws(seed)
        self._norms = np.square(points).sum(axis=1) / 2
        self._least = np.full(len(points), np.inf, np.float32)
        self._taken = set[int]()

    def next(self, retries: int) -> int:
        """The point, of `retries` + 1 drawn, that leaves the least sum of distances."""
        sums = self._least.cumsum(dtype=np.float32) if self._taken else None
        best, potential, least = 0, math.inf, self._least
        for _ in range(1 + retries):
            check_wanted()
            index = self._draw(sums)
            distances = np.minimum(self._least, self._norms - self._points @ self._points[index] + self._norms[index])
            total = float(distances.sum())
            if retries == 0 or total < potential:
                best, potential, least = index, total, distances
        self._least = least
        self._taken.add(best)
        return best

    def _draw(self, sums: Any) -> int:
        count = len(self._points)
        if sums is None:
            return self._random.below(count)
        total = sums[-1]
        for _ in range(_DRAWS):
            if total > 0:
                place = np.searchsorted(sums, self._random.unit() * total, side="right")
                index = min(int(place), count - 1)
            else:  # all points are equal to one that was taken, or a coordinate is NaN
                index = self._random.below(count)
            if index not in self._taken:
                return index
        # Rounding, or an infinite sum, leaves a chance only to points that were taken.
        return next(index for index in range(count) if index not in self._taken)


@kernel("KmeansPlusPlusInitialization", cost=_sampling_cost, scratch=16)
def kmeans_plus_plus(c: OpKernelConstruction) -> Compute:
    """Return `num_to_sample` different rows of the points [n, d], drawn by k-means++.

    Each is the best of `num_retries_per_sample` + 1 draws; a negative number stands for 2 + log(num_to_sample).
    """
    allocate = allocator(c)

    def compute(points: Any, num_to_sample: Any, seed: Any, num_retries_per_sample: Any) -> Any:
        _scalars(num_to_sample=num_to_sample, seed=seed, num_retries_per_sample=num_retries_per_sample)
        _check_sampling(points, num_to_sample)
        retries = _retries(num_to_sample, num_retries_per_sample)
        samples = allocate((int(num_to_sample), points.shape[1]))
        announce_scratch(points.nbytes + 8 * len(points) * points.itemsize)
        sampling = _Sampling(points, int(seed))
        with np.errstate(all="ignore"):
            for row in samples:
                row[...] = points[sampling.next(retries)]
        return samples

    return compute


@kernel("KMC2ChainInitialization", cost=lambda distances, seed: _STEP_NS * distances.size, scratch=8)
def markov_chain(c: OpKernelConstruction) -> Compute:
    """Return the last state, an index, of a Markov chain over distances [n], which takes the further points."""

    def compute(distances: Any, seed: Any) -> Any:
        if distances.ndim != 1:
            raise errors.InvalidArgumentError("Input distances should be a vector.")
        _scalars(seed=seed)
        if not distances.size:
            raise errors.InvalidArgumentError("Expected distances_tensor.size() > 0.")
        generator = Philox.from_seeds(int(seed), 0)
        chosen, reached = 0, distances[0]
        with np.errstate(all="ignore"):
            for start in range(0, distances.size - 1, _STEPS):
                check_wanted()
                candidates = distances[1 + start :][:_STEPS]
                units = unit_floats(generator.words(start // 4, -(-len(candidates) // 4)).reshape(-1))
                for index, (candidate, unit) in enumerate(zip(candidates, units, strict=False), 1 + start):
                    if candidate > unit * reached:
                        chosen, reached = index, candidate
        return np.int64(chosen)

    return compute
