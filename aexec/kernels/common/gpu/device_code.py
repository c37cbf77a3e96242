"""Elementwise functions as code for GPUs: one launch instead of several functions of an array module.

A `Code` is a few statements in C++ on the elements of its inputs.  CuPy makes a kernel of it (`ElementwiseKernel`),
which is compiled at its first call and kept for all nodes, and on disk.  Other modules compute the same by functions.
Next to read: `elementwise_code.py`, which has the code of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.late_dataclass import dataclass

__all__ = ["Code", "compiled", "elementwise_kernel"]

# The type in which code computes, by the type of its arrays.
_WORK = {dtypes.float16: "float", dtypes.float32: "float", dtypes.float64: "double"}


@dataclass(frozen=True, slots=True)
class Code:
    """Statements on elements.

    Attributes:
        inputs: names of the elements, in the order of the arrays; arrays are broadcast.
        outputs: name of a result → its expression, of inputs and of variables that `before` declares, all of type `W`.
        before: statements that come before the outputs.
        narrow: half is computed in float and rounded once; if False, there is no code for half.
    """

    inputs: tuple[str, ...]
    outputs: Mapping[str, str]
    before: str = ""
    narrow: bool = True

    @property
    def operation(self) -> str:
        """The statements with conversions of inputs and outputs from and to the arrays' type."""
        taken = "".join(f"const W {name} = {name}_in; " for name in self.inputs)
        given = "".join(f"{name}_out = {value}; " for name, value in self.outputs.items())
        return f"{taken}{self.before} {given}"


def compiled(xp: Any, name: str, code: Code, dtype: DType) -> Callable[..., Any] | None:
    """A function of arrays of one type, or None if `xp` is not CuPy, or C++ lacks the type.

    It returns an array, or a tuple of them if there are several outputs.

    Args:
        name: of the kernel, as profiles show it.
    """
    if dtype is dtypes.float16 and not code.narrow:
        return None
    inputs = [f"{dtype.np.name} {each}_in" for each in code.inputs]
    outputs = [f"{dtype.np.name} {each}_out" for each in code.outputs]
    return elementwise_kernel(xp, name, inputs, outputs, code.operation, dtype)


def elementwise_kernel(
    xp: Any, name: str, inputs: Sequence[str], outputs: Sequence[str], operation: str, dtype: DType
) -> Callable[..., Any] | None:
    """CuPy's kernel of statements that compute in `W`; None if `xp` is not CuPy, or C++ lacks `dtype`.

    Args:
        inputs, outputs: type and name of each, as CuPy takes them.
    """
    make = getattr(xp, "ElementwiseKernel", None)
    if make is None or dtype not in _WORK:
        return None
    typed = f"typedef {_WORK[dtype]} W; {operation}"
    kernel: Callable[..., Any] = make(", ".join(inputs), ", ".join(outputs), typed, f"aexec_{name}")
    return kernel
