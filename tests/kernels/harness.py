"""Runs one kernel without a graph: built through the registries, called as the executor would call it.

    y = run_op("AddV2", [x, 1.0])
    parts = run_op("ConcatV2", [[a, b], 0])            # a list for an argument that is a list
    z = run_op("Cast", [x], DstT="bfloat16")

`registered` and `in_tensorflow` tell which kernels an op has, here and in TensorFlow's CPU build.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib
import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import aexec.kernels
import aexec.ops
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.framework.op_contract import op_registry
from aexec.framework.wire.node_def import check_attrs
from aexec.framework.wire.op_def import ArgDef

__all__ = ["build", "in_tensorflow", "ops_of", "registered", "run_op", "strings"]

Inputs = Sequence[Any]


def run_op(op: str, inputs: Inputs, *, context: Any = None, **attrs: Any) -> Any:
    """The outputs of an op's CPU kernel: one array, or a tuple unless there is exactly one.

    Args:
        op: its name.
        inputs: one entry per input argument, a list for an argument that takes several tensors.
            Anything that NumPy makes an array of; where the op fixes the type it is converted.
        context: the `OpKernelContext` for kernels that need one.
        attrs: attrs that do not follow from the inputs.

    Raises:
        OpError: as the executor would see it.
        AssertionError: an output is not what the op's definition says, or an input was written to.
    """
    built, arrays, output_types = build(op, inputs, **attrs)
    before = [a.copy() for a in arrays]
    prefix = [context] if built.wants_context else []
    outputs = _call(built, prefix, arrays)
    scalars = [a[()] if a.ndim == 0 and a.dtype != object else a for a in arrays]
    if context is None and any(s is not a for s, a in zip(scalars, arrays, strict=True)):
        _assert_equal(op, _call(built, prefix, scalars), outputs)
    _assert_same_over_inputs(op, built, arrays, outputs)
    for array, copy in zip(arrays, before, strict=True):
        assert array.dtype == object or array.tobytes() == copy.tobytes(), f"{op} changed one of its inputs"
    return _checked(op, outputs, output_types)


def _call(built: BuiltKernel, prefix: list[Any], arrays: list[Any]) -> Any:
    with np.errstate(all="ignore"):
        try:
            outputs = built.compute(*prefix, *arrays)
            return asyncio.run(outputs) if built.is_async else outputs
        except errors.OpError:
            raise
        except Exception as exc:
            if built.explain is None:
                raise
            raise built.explain(exc, *arrays) from exc


def _assert_same_over_inputs(op: str, built: BuiltKernel, arrays: list[Any], outputs: Any) -> None:
    """An output that is written over one of the inputs that the kernel asked for is the same."""
    for position in built.forwards:
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        assert not any(np.may_share_memory(first, array) for array in arrays), f"{op} gives an input as it is"
        inputs = list(arrays)
        if inputs[position].shape == first.shape and first.ndim:
            out = inputs[position] = arrays[position].copy()
            with np.errstate(all="ignore"):
                over = built.compute(*inputs, out=out)
            over = over[0] if isinstance(over, tuple) else over
            assert over.dtype == first.dtype, f"{op} gives another result over input {position}"
            assert over.tobytes() == first.tobytes(), f"{op} gives another result over input {position}"


def _assert_equal(op: str, of_scalars: Any, of_arrays: Any) -> None:
    """0-d values come as arrays or as NumPy scalars: that must not make a difference."""
    if isinstance(of_arrays, tuple):
        for a, b in zip(of_scalars, of_arrays, strict=True):
            _assert_equal(op, a, b)
    elif of_arrays is not None:
        a, b = np.asarray(of_scalars), np.asarray(of_arrays)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{op} gives another result for NumPy scalars"
        assert a.dtype == object or a.tobytes() == b.tobytes(), f"{op} gives another result for NumPy scalars"


def build(op: str, inputs: Inputs, **attrs: Any) -> tuple[BuiltKernel, list[Any], tuple[DType, ...]]:
    """The built kernel, the flat list of its inputs, and the types of its outputs."""
    op_def = op_registry.global_registry.lookup(op).op_def
    assert len(inputs) == len(op_def.inputs), f"{op} takes {len(op_def.inputs)} arguments"
    known = dict(attrs)
    arrays: list[Any] = []
    for arg, value in zip(op_def.inputs, inputs, strict=True):
        arrays += _arguments(arg, value, known)
    values = check_attrs(op_def, known, node=op)
    construction = OpKernelConstruction(
        name=op,
        op_def=op_def,
        attrs=values,
        input_types=op_def.input_types(values),
        output_types=op_def.output_types(values),
    )
    registration = kernel_registry.global_registry.lookup(op, "CPU", values, node=op)
    return registration.build(construction), arrays, op_def.output_types(values)


def strings(*values: Any, shape: tuple[int, ...] | None = None) -> Any:
    """An array of byte strings."""
    array = np.empty(len(values), object)
    array[:] = [v.encode() if isinstance(v, str) else v for v in values]
    return array if shape is None else array.reshape(shape)


def _arguments(arg: ArgDef, value: Any, attrs: dict[str, Any]) -> list[Any]:
    if arg.type_list_attr:
        arrays = [_array(v) for v in value]
        attrs.setdefault(arg.type_list_attr, [dtypes.from_numpy(a.dtype) for a in arrays])
        return arrays
    many = list(value) if arg.number_attr else [value]
    wanted = arg.type if arg.type is not None else attrs.get(arg.type_attr)
    arrays = [_array(v, dtypes.as_dtype(wanted).np if wanted is not None else None) for v in many]
    if arg.number_attr:
        attrs.setdefault(arg.number_attr, len(arrays))
    if arg.type_attr and arrays:
        attrs.setdefault(arg.type_attr, dtypes.from_numpy(arrays[0].dtype))
    return arrays


def _array(value: Any, dtype: np.dtype[Any] | None = None) -> Any:
    array = np.array(value, dtype)
    if array.dtype.kind in "SU":
        array = array.astype(object)
    elif array.dtype == np.float64 and dtype is None and not isinstance(value, np.ndarray | np.generic):
        array = array.astype(np.float32)  # as TensorFlow takes Python's floats
    elif array.dtype == np.int64 and dtype is None and not isinstance(value, np.ndarray | np.generic):
        array = array.astype(np.int32)
    array.flags.writeable = False
    return array


def _checked(op: str, outputs: Any, types: tuple[DType, ...]) -> Any:
    flat = outputs if isinstance(outputs, tuple) else () if outputs is None else (outputs,)
    assert len(flat) == len(types), f"{op} gave {len(flat)} outputs, its definition says {len(types)}"
    for output, dtype in zip(flat, types, strict=True):
        if dtype.is_ref:
            continue
        assert isinstance(output, np.ndarray) or (isinstance(output, np.generic) and dtype.is_simple), type(output)
        assert output.dtype == dtype.np, f"{op} gave {output.dtype}, its definition says {dtype}"
    return flat[0] if len(types) == 1 else flat if types else None


# What is registered: one tuple per combination of device, label, host memory and type constraints

Registration = tuple[str, str, frozenset[str], frozenset[tuple[str, DType]]]


def registered(op: str) -> set[Registration]:
    """The op's kernels in this package, for devices CPU and DEFAULT."""
    return {
        combination
        for k in kernel_registry.global_registry.kernels_of(op)
        if k.device_type in ("CPU", "DEFAULT")
        for combination in _combinations(k.device_type, k.label, k.host_memory, k.constraints)
    }


def ops_of_tensorflow() -> list[str]:
    """The ops that TensorFlow's CPU build has kernels for."""
    kernels = _tensorflow_kernels().items()
    return sorted(op for op, entries in kernels if any(entry["device"] in ("CPU", "DEFAULT") for entry in entries))


def in_tensorflow(op: str) -> set[Registration] | None:
    """The same for TensorFlow's CPU build; None if it has no kernel for the op."""
    entries = _tensorflow_kernels().get(op)
    if entries is None:
        return None
    return {
        combination
        for e in entries
        if e["device"] in ("CPU", "DEFAULT")
        for combination in _combinations(
            e["device"],
            e.get("label", ""),
            e.get("host_memory", ()),
            {attr: [dtypes.as_dtype(t) for t in types] for attr, types in e.get("constraint", {}).items()},
        )
    }


def ops_of(*modules: str) -> list[str]:
    """Names of the ops that have a kernel in these modules of `aexec.kernels`: `nn.conv_ops`."""
    for module in modules:
        importlib.import_module(f"{aexec.kernels.__name__}.{module}")
    names = {f"{aexec.kernels.__name__}.{m}" for m in modules}
    registry = kernel_registry.global_registry
    return [op for op in registry.ops() if any(k.builder.__module__ in names for k in registry.kernels_of(op))]


@cache
def _tensorflow_kernels() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "kernels.json.gz"
    with gzip.open(path, "rt") as file:
        kernels: dict[str, Any] = json.load(file)
    return kernels


def _combinations(
    device: str, label: str, host_memory: Sequence[str], constraints: Mapping[str, Any]
) -> set[Registration]:
    # A constraint without types is one on a string attr: the builder checks it.
    choices = [[(attr, dtype) for dtype in types] for attr, types in constraints.items() if types]
    return {(device, label, frozenset(host_memory), frozenset(choice)) for choice in itertools.product(*choices)}
