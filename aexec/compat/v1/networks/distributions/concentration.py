"""`ConcentrationDistribution`: the base of `Dirichlet` and `DirichletMultinomial`.

Next to read: `dirichlet.py`.
"""

from __future__ import annotations

from aexec import ops
from aexec.compat.v1.networks.distributions.event_shapes import VectorDistribution, negative_products
from aexec.graph.nodes.node import Tensor

__all__ = ["ConcentrationDistribution"]


class ConcentrationDistribution(VectorDistribution):
    """A distribution with a positive concentration per class.

    A subclass sets `_concentration`, [*batch_shape, classes], and `_total_concentration`, its sum over the last axis.
    """

    _concentration: Tensor
    _total_concentration: Tensor

    @property
    def concentration(self) -> Tensor:
        """The concentration of each class, [*batch_shape, classes]."""
        return self._concentration

    @property
    def total_concentration(self) -> Tensor:
        """The sum of the concentrations of all classes, [*batch_shape]."""
        return self._total_concentration

    def _total(self) -> Tensor:
        """`total_concentration` with a last axis of size 1, to broadcast against `concentration`."""
        return ops.expand_dims(self.total_concentration, -1)

    def _scale(self) -> Tensor:
        """The factor s for which the covariance of two classes is -(s * mean of one) * (s * mean of the other)."""
        raise NotImplementedError

    def _covariance(self) -> Tensor:
        scaled = self._scale() * self._mean()
        return ops.matrix_set_diag(negative_products(scaled, scaled), self._variance())
