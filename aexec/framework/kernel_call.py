"""Kernels in the style of TensorFlow's C++ ones: `compute(call)` reads inputs and sets outputs by index or name.

Most kernels are functions of arrays (`op_kernel.py`).  Who ports a kernel class, or wants
an output to take the place of an input, derives from `ContextOpKernel` and is given a
`KernelCall`, which has the names of OpKernelContext in core/framework/op_kernel.h.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.allocator import Allocator, cpu_allocator
from aexec.framework.dtypes import DType, as_dtype
from aexec.framework.op_kernel import OpKernel, OpKernelConstruction, OpKernelContext
from aexec.framework.ref_cell import RefCell
from aexec.framework.shape import shape_text

__all__ = ["ContextOpKernel", "KernelCall"]

Ranges = Mapping[str, tuple[int, int]]


class _Signature:
    """What all calls of one kernel have in common."""

    __slots__ = ("input_ranges", "input_types", "name", "op", "output_ranges", "output_types", "reserved")

    def __init__(self, c: OpKernelConstruction) -> None:
        self.name = c.name
        self.op = c.op
        self.input_types = c.input_types
        self.output_types = c.output_types
        self.input_ranges: Ranges = c.op_def.input_ranges(c.attrs)
        self.output_ranges: Ranges = c.op_def.output_ranges(c.attrs)
        pairs = list(c.attrs.get("_forward_input", ()))
        # Output → the input whose buffer was reserved for it by whoever wrote the graph.
        self.reserved = dict(zip(pairs[1::2], pairs[::2], strict=True))


class KernelCall:
    """One call of a kernel.

    Attributes:
        context: the step that the call belongs to.
    """

    def __init__(self, signature: _Signature, context: OpKernelContext, inputs: Sequence[Any]) -> None:
        self.context = context
        self._signature = signature
        self._inputs = list(inputs)
        self._outputs: list[Any] = [None] * len(signature.output_types)
        self._forwarded: set[int] = set()

    # Inputs

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._outputs)

    def input(self, which: int | str) -> Any:
        """An input by position, or by the name of an argument that is a single tensor.

        Raises:
            InvalidArgumentError: no such input, or the name of a list.
        """
        return self._inputs[self._index(which, self._signature.input_ranges, len(self._inputs), "input")]

    def input_list(self, name: str) -> list[Any]:
        """All tensors of an input argument."""
        start, stop = self._range(name, self._signature.input_ranges, "input")
        return self._inputs[start:stop]

    def input_dtype(self, which: int | str) -> DType:
        index = self._index(which, self._signature.input_ranges, len(self._inputs), "input")
        return self._signature.input_types[index]

    def input_is_ref(self, which: int | str) -> bool:
        return self.input_dtype(which).is_ref

    def mutable_input(self, which: int | str) -> RefCell:
        """The variable's cell of an input of ref type.  Raises InvalidArgumentError if it is none."""
        value = self.input(which)
        if not isinstance(value, RefCell):
            raise errors.InvalidArgumentError(f"{which}-th input expects a ref type")
        return value

    def replace_ref_input(self, which: int | str, value: Any) -> None:
        """Assign to the variable of an input of ref type."""
        self.mutable_input(which).value = np.asarray(value)

    def forward_ref_input_to_ref_output(self, input_index: int | str, output_index: int) -> None:
        """The variable of an input is also an output."""
        self._outputs[output_index] = self.mutable_input(input_index)

    def validate_inputs_are_same_shape(self) -> None:
        """Raises InvalidArgumentError unless all inputs have the shape of the first."""
        first = np.shape(self._inputs[0])
        for index, value in enumerate(self._inputs):
            if np.shape(value) != first:
                raise errors.InvalidArgumentError(
                    f"Inputs to operation {self._signature.name} of type {self._signature.op} must have the same size "
                    f"and shape. Input 0: {shape_text(first)} != input {index}: {shape_text(np.shape(value))}"
                )

    # Outputs

    def set_output(self, which: int | str, value: Any) -> None:
        """Make `value` an output."""
        self._outputs[self._output(which)] = value

    def output_list(self, name: str, values: Sequence[Any]) -> None:
        """Set all tensors of an output argument.  Raises InvalidArgumentError for another number of them."""
        start, stop = self._range(name, self._signature.output_ranges, "output")
        if len(values) != stop - start:
            raise errors.InvalidArgumentError(f"output '{name}' has {stop - start} tensors, got {len(values)}")
        self._outputs[start:stop] = values

    def allocate_output(self, which: int | str, shape: Sequence[int]) -> Any:
        """A new array for an output, aligned and not initialised.

        Raises:
            InternalError: the output was allocated before.
            ResourceExhaustedError: no memory.
        """
        index = self._output(which)
        if self._outputs[index] is not None:
            raise errors.InternalError(f"output {index} of {self._signature.name} was allocated or set before")
        array = self.allocate_temp(self._signature.output_types[index], shape)
        self._outputs[index] = array
        return array

    def allocate_temp(self, dtype: Any, shape: Sequence[int]) -> Any:
        """A new array, aligned and not initialised.  Raises ResourceExhaustedError."""
        return self.allocator.allocate_tensor(shape, as_dtype(dtype).base)

    @property
    def allocator(self) -> Allocator:
        return cpu_allocator()

    def forward_input(self, input_index: int, output_index: int, shape: Sequence[int]) -> Any | None:
        """An input's array as output, if nobody else has it; else None.

        It must have the output's type and number of elements, be the last use of its buffer (or be
        reserved for this output by the node's `_forward_input` attr), and not have been forwarded.
        """
        reserved_for = {i: o for o, i in self._signature.reserved.items()}
        if reserved_for.get(input_index, output_index) != output_index or input_index in self._forwarded:
            return None
        # Asked before a variable of ours refers to the array too.
        if input_index not in reserved_for and not _is_last_use(self._inputs, input_index):
            return None
        array = self._inputs[input_index]
        if not isinstance(array, np.ndarray) or self._signature.input_types[input_index].is_ref:
            return None
        same_type = self._signature.input_types[input_index] is self._signature.output_types[output_index]
        if not same_type or array.size != _elements(shape) or not array.flags.c_contiguous:
            return None
        self._forwarded.add(input_index)
        result = array if array.shape == tuple(shape) else array.reshape(shape)
        self._outputs[output_index] = result
        return result

    def forward_input_or_allocate_output(
        self, candidates: Sequence[int], output_index: int, shape: Sequence[int]
    ) -> Any:
        """The first of the candidate inputs that can be forwarded, else a new array."""
        for candidate in candidates:
            forwarded = self.forward_input(candidate, output_index, shape)
            if forwarded is not None:
                return forwarded
        return self.allocate_output(output_index, shape)

    def results(self) -> Any:
        """The outputs, as a compute callable returns them."""
        return tuple(self._outputs)

    # Names

    def _output(self, which: int | str) -> int:
        return self._index(which, self._signature.output_ranges, len(self._outputs), "output")

    def _index(self, which: int | str, ranges: Ranges, count: int, kind: str) -> int:
        if isinstance(which, int):
            if not 0 <= which < count:
                raise errors.InvalidArgumentError(f"{kind} {which} is not in [0, {count})")
            return which
        start, stop = self._range(which, ranges, kind)
        if stop - start != 1:
            raise errors.InvalidArgumentError(
                f"OpKernel used list-valued {kind} name '{which}' when single-valued {kind} was expected"
            )
        return start

    def _range(self, name: str, ranges: Ranges, kind: str) -> tuple[int, int]:
        found = ranges.get(name)
        if found is None:
            raise errors.InvalidArgumentError(
                f"Unknown {kind} name: {name}; {self._signature.op} has {', '.join(ranges) or 'none'}"
            )
        return found


class ContextOpKernel(OpKernel):
    """Base for kernels whose `run(call)` reads inputs from, and sets outputs on, a `KernelCall`."""

    def __init__(self, c: OpKernelConstruction) -> None:
        super().__init__(c)
        c.need_context()
        self._signature = _Signature(c)

    def run(self, call: KernelCall) -> None:
        """Compute the outputs."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not define run")

    def compute(self, *inputs: Any) -> Any:
        context, *arrays = inputs
        call = KernelCall(self._signature, context, arrays)
        del inputs, arrays  # so that the call holds the only references of this frame
        self.run(call)
        return call.results()


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _is_last_use(inputs: list[Any], index: int) -> bool:
    """Is the array held by nobody but this call, and writeable?"""
    if _reference_count(inputs, index) != _own_references or not isinstance(inputs[index], np.ndarray):
        return False
    return bool(inputs[index].flags.writeable and inputs[index].flags.owndata)


def _reference_count(inputs: list[Any], index: int) -> int:
    return sys.getrefcount(inputs[index])


def _references_of_an_inline_call() -> int:
    """How many references there are to an input that only the executor's inline call holds.

    Measured on a call of the same form, because interpreters differ in how they pass arguments.
    A call with more holders (offloaded, shared, fed) has a higher count and is never taken for it.
    """
    counted = []

    class Probe(ContextOpKernel):
        def __init__(self) -> None:
            self._signature = object.__new__(_Signature)
            self._signature.output_types = ()

        def run(self, call: KernelCall) -> None:
            counted.append(_reference_count(call._inputs, 0))

    compute = Probe().compute
    inputs = [np.empty(1)]
    arguments = [None, *inputs]
    compute(*arguments)
    return counted[0]


_own_references = _references_of_an_inline_call()
