"""`tensorflow.python.ops.init_ops`: the classes of initializers, and their base for a program's own.

Next to read: `aexec/compat/v1/networks/initializers.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.compat.v1.namespace import namespace

__all__ = ["Initializer"]


class Initializer:
    """The base of a program's own initializers: `__call__` returns the first value of a variable."""

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        """Raises NotImplementedError: a subclass makes the value."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """The arguments with which it was made; a subclass says them."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Initializer:
        """An initializer of these arguments."""
        return cls(**config)


_WORDS = {
    "Constant": "constant",
    "GlorotNormal": "glorot_normal",
    "GlorotUniform": "glorot_uniform",
    "Identity": "identity",
    "Ones": "ones",
    "Orthogonal": "orthogonal",
    "RandomNormal": "random_normal",
    "RandomUniform": "random_uniform",
    "TruncatedNormal": "truncated_normal",
    "VarianceScaling": "variance_scaling",
    "Zeros": "zeros",
    "identity_initializer": "identity",
}

__getattr__, __dir__ = namespace(__name__, {name: f"networks.initializers:{word}" for name, word in _WORDS.items()})
