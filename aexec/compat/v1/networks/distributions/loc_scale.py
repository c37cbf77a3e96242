"""`LocScaleDistribution`: the base of `Normal`, `Laplace` and `StudentT`.

Next to read: `normal.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from aexec.client.building import name_scope
from aexec.compat.v1.functions.control_flow_ops import assert_positive
from aexec.compat.v1.networks.distributions.distribution import FULLY_REPARAMETERIZED
from aexec.compat.v1.networks.distributions.event_shapes import ScalarDistribution
from aexec.compat.v1.networks.distributions.parameters import floats, shapes_of
from aexec.graph.nodes.node import Tensor

__all__ = ["LocScaleDistribution"]


class LocScaleDistribution(ScalarDistribution):
    """A distribution that is a standard one, shifted by `loc` and stretched by `scale`.

    A subclass lists its parameters in `_PARAMETERS`; `_POSITIVE` names the one that `validate_args` checks.

    Args:
        parameters: the subclass's arguments by name, with a value for each name in `_PARAMETERS`.
        validate_args: fail a run in which the `_POSITIVE` parameter has an element that is not positive.
        allow_nan_stats: as of `Distribution`.
        name: scope of the nodes.

    Raises:
        ValueError: the parameters have different dtypes, or a dtype that is not floating.
    """

    _PARAMETERS: ClassVar[tuple[str, ...]] = ("loc", "scale")
    _POSITIVE: ClassVar[str] = "scale"

    def __init__(self, parameters: Mapping[str, Any], validate_args: bool, allow_nan_stats: bool, name: str) -> None:
        with name_scope(name) as scope:
            checks = [assert_positive(parameters[self._POSITIVE])] if validate_args else []
            tensors = floats(checks, **{key: parameters[key] for key in self._PARAMETERS})
        self._tensors = dict(zip(self._PARAMETERS, tensors, strict=True))
        super().__init__(
            tensors[0].dtype.base, FULLY_REPARAMETERIZED, validate_args, allow_nan_stats, parameters, tensors, scope
        )

    @classmethod
    def _param_shapes(cls, sample_shape: Any) -> dict[str, Tensor]:
        return shapes_of(cls._PARAMETERS, sample_shape)

    @property
    def loc(self) -> Tensor:
        """The location: the centre of symmetry, which is also the mode."""
        return self._tensors["loc"]

    @property
    def scale(self) -> Tensor:
        """The scale of the standard distribution; the standard deviation only for `Normal`."""
        return self._tensors["scale"]

    def _z(self, x: Tensor) -> Tensor:
        """The values of the standard distribution that correspond to `x`."""
        return (x - self.loc) / self.scale
