"""Kernels that write numbers and tensors as text: AsString, StringFormat.

`aexec/kernels/parsing/number_ops.py` has the inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.kernel_contract.output_sizes import AttrCost
from aexec.framework.memory.allocator import announce_scratch
from aexec.framework.waiting.loop_budget import giving_way
from aexec.kernels.common.printing import edges_text, encoded
from aexec.kernels.common.strings import elements_of, made, string_array

__all__: list[str] = []

# ----------------------------------------------------------------- AsString

Format = Callable[[Any], bytes]


def _check_format(c: OpKernelConstruction, dtype: DType) -> None:
    whole = dtype.is_integer or dtype is dtypes.bool_
    if whole and (c.attr("scientific") or c.attr("shortest")):
        raise errors.InvalidArgumentError(f"scientific and shortest format not supported for datatype {dtype}")
    if whole and c.attr("precision") >= 0:
        raise errors.InvalidArgumentError(f"precision not supported for datatype {dtype}")
    if c.attr("scientific") and c.attr("shortest"):
        raise errors.InvalidArgumentError("Cannot select both scientific and shortest notation")
    fill = c.text("fill")
    if len(fill) > 1:
        raise errors.InvalidArgumentError("Fill string must be one or fewer characters")
    if fill not in ("", " ", "0", "+", "-", "#"):
        raise errors.InvalidArgumentError(f'Fill argument not supported: "{fill}"')


def _number_format(c: OpKernelConstruction, dtype: DType, width: int) -> Callable[[Any], str]:
    """C's printf for one number, without a width if that is negative."""
    precision, fill = c.attr("precision"), c.text("fill")
    kind = "e" if c.attr("scientific") else "g" if c.attr("shortest") else "f"
    digits = f".{precision}" if precision >= 0 else ""
    size = str(width) if width >= 0 else ""
    if dtype.is_integer:
        template = f"%{fill}{size}d"
        return lambda v: template % v
    template = f"%{fill}{size}{digits}{kind}"
    # C pads infinities and NaN with spaces.
    of_others = f"%{fill if fill != '0' else ''}{size}{digits}{kind}"
    return lambda v: (template if abs(v) < np.inf else of_others) % v


def _format(c: OpKernelConstruction) -> Format:
    dtype = c.input_types[0].base
    _check_format(c, dtype)
    if dtype is dtypes.bool_:
        return lambda v: b"true" if v else b"false"
    if dtype is dtypes.string:
        width, left = c.attr("width"), c.text("fill") == "-"
        return lambda s: s.ljust(width) if left else s.rjust(width)
    if dtype is dtypes.variant:
        return lambda v: str(v).encode()
    if dtype.is_complex:
        # The width is ignored, as in TensorFlow.
        part = _number_format(c, dtypes.float64, -1)
        return lambda v: f"({part(v.real)},{part(v.imag)})".encode()
    number = _number_format(c, dtype, c.attr("width"))
    return lambda v: number(v).encode()


# Nobody reads a longer text of a number, and a few of them fill the memory.
_MOST_CHARACTERS = 1 << 20


def _check_width(*sizes: int) -> None:
    for size in sizes:
        if size > _MOST_CHARACTERS:
            raise errors.ResourceExhaustedError(f"a text of {size} characters is longer than {_MOST_CHARACTERS}")


def _text_ns(attrs: Mapping[str, Any]) -> float:
    """Nanoseconds for the text of one element."""
    width, precision = max(0, attrs["width"]), max(0, attrs["precision"])
    return 400.0 + 0.5 * float(width) + 10.0 * float(precision)


@kernel("AsString", cost=AttrCost(_text_ns))
def as_string(c: OpKernelConstruction) -> Compute:
    """Return each element as printf writes it: %d, %f, %e (`scientific`), %g (`shortest`), true and false."""
    text, text_ns = _format(c), _text_ns(c.attrs)
    _check_width(c.attr("width"), c.attr("precision"))

    def compute(x: Any) -> Any:
        if not isinstance(x, np.ndarray) or x.dtype.kind == "V":
            x = np.asarray(x)
        if x.dtype.kind in "Vf" and x.itemsize <= 2:
            announce_scratch(4 * x.size)
            x = x.astype(np.float32)
        return string_array(made(text(v) for v in giving_way(elements_of(x), text_ns)), x.shape)

    return compute


# ------------------------------------------------------------- StringFormat


@kernel("StringFormat", cost=2000.0)
def string_format(c: OpKernelConstruction) -> Compute:
    """Return the template with each placeholder replaced by the text of a tensor."""
    template, placeholder, summarize = c.attr("template"), c.attr("placeholder"), c.attr("summarize")
    # An empty placeholder occurs between any two characters.
    pieces = template.split(placeholder) if placeholder else [template[i : i + 1] for i in range(len(template) or 1)]
    if len(pieces) - 1 != len(c.input_types):
        raise errors.InvalidArgumentError(
            f"num placeholders in template and num inputs must match: {len(pieces) - 1} vs. {len(c.input_types)}"
        )

    def compute(*inputs: Any) -> Any:
        parts = [pieces[0]]
        for x, piece in zip(inputs, pieces[1:], strict=True):
            parts += [encoded(edges_text(x, summarize)), piece]
        return string_array([b"".join(parts)], ())

    return compute
