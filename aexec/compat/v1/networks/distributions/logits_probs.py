"""`LogitsProbsDistribution`: the base of `Bernoulli`, `Categorical` and `Multinomial`.

Next to read: `bernoulli.py`.
"""

from __future__ import annotations

from aexec.compat.v1.networks.distributions.distribution import Distribution
from aexec.graph.nodes.node import Tensor

__all__ = ["LogitsProbsDistribution"]


class LogitsProbsDistribution(Distribution):
    """A distribution that programs describe by logits or by probabilities.

    A subclass sets `_logits` and `_probs` with `parameters.logits_and_probs`; both have the same shape and dtype.
    """

    _logits: Tensor
    _probs: Tensor

    @property
    def logits(self) -> Tensor:
        """Bernoulli: the log-odds of 1, [*batch_shape].  Others: unnormalised log-probabilities, [..., classes]."""
        return self._logits

    @property
    def probs(self) -> Tensor:
        """Bernoulli: the probability of 1, [*batch_shape].  Others: the probabilities of classes, [..., classes]."""
        return self._probs
