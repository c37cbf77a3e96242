"""TensorFlow's initializers: aexec's, which can also be made with a type, or be passed as a class.

Next to read: `optimizers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any

from aexec.compat.v1.namespace import namespace, renamed
from aexec.framework.dtypes import as_dtype, float32
from aexec.variables import initializers as _ours

__all__ = [
    "constant_initializer",
    "glorot_normal_initializer",
    "glorot_uniform_initializer",
    "he_normal",
    "he_uniform",
    "identity",
    "lecun_normal",
    "lecun_uniform",
    "ones_initializer",
    "orthogonal_initializer",
    "random_normal_initializer",
    "random_uniform_initializer",
    "truncated_normal_initializer",
    "uniform_unit_scaling_initializer",
    "variance_scaling_initializer",
    "zeros_initializer",
]


class _Typed:
    """An initializer with its default type.

    Args:
        config: the arguments that it was made with, by name.
    """

    def __init__(self, initializer: _ours.Initializer, dtype: Any, config: Mapping[str, Any]) -> None:
        self._initializer = initializer
        self._dtype = as_dtype(dtype or float32)
        self._config = config

    def get_config(self) -> dict[str, Any]:
        """The arguments that make one like it; the type by its name."""
        return {**self._config, "dtype": self._dtype.name}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> _Typed:
        """An initializer of the arguments that `get_config` returns."""
        return cls(**config)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        wanted = self._dtype if dtype is None else as_dtype(dtype)
        part = {"partition_info": partition_info} if "partition_info" in signature(self._initializer).parameters else {}
        return self._initializer([int(size) for size in shape], wanted, **part)

    def __repr__(self) -> str:
        return repr(self._initializer)


def _initializer(make: Callable[..., _ours.Initializer], arguments: str = "") -> type:
    """A class with TensorFlow's name of an initializer, these arguments and a type."""
    taken = Signature(
        [
            *(p.replace(kind=Parameter.KEYWORD_ONLY) for p in signature(make).parameters.values()),
            Parameter("dtype", Parameter.KEYWORD_ONLY, default=float32),
        ]
    )

    defaults = {name: p.default for name, p in signature(make).parameters.items() if p.default is not p.empty}

    def parameters(**given: Any) -> None:
        """Its signature says what `make` takes, and the type."""

    parameters.__signature__ = taken  # type: ignore[attr-defined]
    prepare = renamed(
        lambda dtype=None, **given: (make(**given), dtype, {**defaults, **given}),
        arguments if "dtype" in arguments else f"{arguments} dtype",
        make.__name__,
        parameters,
    )

    def begin(self: _Typed, *values: Any, **named: Any) -> None:
        _Typed.__init__(self, *prepare(*values, **named))

    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    begin.__signature__ = Signature([own, *signature(prepare).parameters.values()])  # type: ignore[attr-defined]
    return type(make.__name__, (_Typed,), {"__init__": begin, "__doc__": f"aexec's `{make.__name__}`."})


zeros_initializer = _initializer(_ours.Zeros)
ones_initializer = _initializer(_ours.Ones)
constant_initializer = _initializer(_ours.Constant, "value dtype verify_shape!")
random_uniform_initializer = _initializer(_ours.RandomUniform, "minval maxval seed")
random_normal_initializer = _initializer(_ours.RandomNormal, "mean stddev seed")
truncated_normal_initializer = _initializer(_ours.TruncatedNormal, "mean stddev seed")
uniform_unit_scaling_initializer = _initializer(_ours.UniformUnitScaling, "factor seed")
variance_scaling_initializer = _initializer(_ours.VarianceScaling, "scale mode distribution seed")
orthogonal_initializer = _initializer(_ours.Orthogonal, "gain seed")
identity = _initializer(_ours.Identity, "gain")
glorot_uniform_initializer = _initializer(_ours.glorot_uniform, "seed")
glorot_normal_initializer = _initializer(_ours.glorot_normal, "seed")
he_normal = _initializer(_ours.he_normal, "seed")
he_uniform = _initializer(_ours.he_uniform, "seed")
lecun_normal = _initializer(_ours.lecun_normal, "seed")
lecun_uniform = _initializer(_ours.lecun_uniform, "seed")

__getattr__, __dir__ = namespace(
    __name__,
    {
        "constant": "networks.initializers:constant_initializer",
        "glorot_normal": "networks.initializers:glorot_normal_initializer",
        "glorot_uniform": "networks.initializers:glorot_uniform_initializer",
        "ones": "networks.initializers:ones_initializer",
        "orthogonal": "networks.initializers:orthogonal_initializer",
        "random_normal": "networks.initializers:random_normal_initializer",
        "random_uniform": "networks.initializers:random_uniform_initializer",
        "truncated_normal": "networks.initializers:truncated_normal_initializer",
        "uniform_unit_scaling": "networks.initializers:uniform_unit_scaling_initializer",
        "variance_scaling": "networks.initializers:variance_scaling_initializer",
        "zeros": "networks.initializers:zeros_initializer",
        "global_variables": "aexec.variables.initialization:global_variables_initializer",
        "variables": "aexec.variables.initialization:variables_initializer | var_list=variables name",
        "local_variables": "aexec.variables.initialization:local_variables_initializer",
        "tables_initializer": "functions.control_flow_ops:tables_initializer",
    },
)
