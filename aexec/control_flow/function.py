"""`function`: turns a Python function over tensors into a function of the graph, which its calls call.

The Python function is *traced*: called once with placeholders to build the body; once for each signature, which is a
combination of types, static shapes and Python values of the arguments.  Calls are PartitionedCall nodes.
Next to read: `aexec/graph/func_graph.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, NamedTuple

import numpy as np

from aexec.client.building import placeholder
from aexec.control_flow.function_call import add_call, built, finished
from aexec.control_flow.structure import leaves_of, pack
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.func_graph import FuncGraph
from aexec.graph.function_def import free_name, is_stateful
from aexec.graph.graph import Graph
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, create_node, require_graph
from aexec.graph.tensor_proxy import TensorProxy

__all__ = ["ConcreteFunction", "TensorSpec", "TracedFunction", "function"]

# A private collection of each graph, with its traces.
_TRACES = "__functions"

# A function that calls itself with a new signature is traced within its own trace; at most this often.
_MOST_UNDER_WAY = 20


@dataclass(frozen=True)
class TensorSpec:
    """The required type and shape of a tensor.

    Attributes:
        shape: None for any shape, else sizes, with None for a dimension of any size.
        dtype: element type: a DType, a name, or a NumPy dtype.
        name: of the argument.
    """

    shape: Any = None
    dtype: Any = "float32"
    name: str | None = None

    def __repr__(self) -> str:
        return f"{dtypes.as_dtype(self.dtype)}{_static(self.shape)}"


def _static(shape: Any) -> PartialTensorShape:
    return PartialTensorShape.of(shape)


class _Operation:
    """Represents an operation in the results of a function: it has run when the call has."""


class _Given(NamedTuple):
    """The arguments of a call.

    Attributes:
        arguments: parameter → structure, as the Python function takes it.
        leaves: of all of these.
        tensors: for each leaf the tensor, or None.
        names: of the tensors' arguments.
        shapes: of the tensors, as far as the trace may depend on them.
    """

    arguments: dict[str, Any]
    leaves: list[Any]
    tensors: list[Tensor | None]
    names: list[str]
    shapes: list[PartialTensorShape]

    @property
    def signature(self) -> Hashable:
        """The key under which the trace is reused."""
        kinds: list[Hashable] = []
        shapes = iter(self.shapes)
        for leaf, tensor in zip(self.leaves, self.tensors, strict=True):
            if tensor is not None:
                kinds.append((tensor.dtype.base, str(next(shapes))))
            else:
                kinds.append((type(leaf), _Same(leaf)))
        return str(self.packed(["."] * len(self.leaves))), tuple(kinds)

    def __str__(self) -> str:
        texts = [
            repr(leaf) if tensor is None else f"{tensor.dtype.base}{tensor.static_shape}"
            for leaf, tensor in zip(self.leaves, self.tensors, strict=True)
        ]
        packed = self.packed([_Text(text) for text in texts])
        return ", ".join(f"{name}: {value}" for name, value in packed.items())

    def packed(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """The arguments with other leaves."""
        values = pack(list(self.arguments.values()), leaves)
        return dict(zip(self.arguments, values, strict=True))


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Same:
    """A Python value in a signature: equal to equal values, or to itself if it cannot be compared.

    0.0 and -0.0 differ here, and NaN equals itself.
    """

    def __init__(self, value: Any) -> None:
        self.value = repr(value) if type(value) in (float, complex) else value
        try:
            self._hash = hash(self.value)
            self._compared = not isinstance(value, TensorProxy)
        except TypeError:
            self._hash, self._compared = id(value), False

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return False
        return bool(self.value == other.value) if self._compared and other._compared else self.value is other.value


class ConcreteFunction:
    """One trace of a function: a function of a graph's library.

    Attributes:
        name: in the library.
        graph: its body.
        captured_inputs: tensors from outside that every call passes to it.
        structured_outputs: the structure that the Python function returned, with a `TensorSpec` for each tensor.
    """

    def __init__(self, graph: FuncGraph, reference: NameAttrList, result: Any, captured: list[Tensor]) -> None:
        self.graph = graph
        self.name = reference.name
        self.captured_inputs = captured
        self._reference = reference
        self._result = result
        self._op = "StatefulPartitionedCall" if is_stateful(graph) else "PartitionedCall"

    @property
    def inputs(self) -> list[TensorSpec]:
        """The arguments that a caller passes."""
        own = self.graph.inputs[: len(self.graph.inputs) - len(self.captured_inputs)]
        return [TensorSpec(tensor.static_shape, tensor.dtype, tensor.node.name) for tensor in own]

    @property
    def structured_outputs(self) -> Any:
        tensors = iter(self.graph.outputs)
        return pack(self._result, [_spec_of(leaf, tensors) for leaf in leaves_of(self._result)])

    def __call__(self, *tensors: Any, name: str | None = None) -> Any:
        """Call it in the current graph.

        Raises:
            InvalidArgumentError: number, types or shapes of the arguments do not fit.
        """
        wanted = self.inputs
        if len(tensors) != len(wanted):
            raise errors.InvalidValueError(
                f"{self!r} takes {len(wanted)} tensors, ({', '.join(map(repr, wanted))}), got {len(tensors)}"
            )
        given = [_fitting(value, spec, self.name) for value, spec in zip(tensors, wanted, strict=True)]
        return self.call(given, name)

    def call(self, tensors: Sequence[Tensor], name: str | None = None) -> Any:
        """Call it with tensors that fit."""
        outputs = self.graph.outputs
        inputs = {"args": [*tensors, *self.captured_inputs]}
        attrs = {"f": self._reference, "Tout": [tensor.dtype.base for tensor in outputs]}
        node = add_call(self._op, [self.graph], inputs, attrs, name)
        given = iter(node.outputs)
        return pack(self._result, [_result_of(leaf, given, node) for leaf in leaves_of(self._result)])

    def __repr__(self) -> str:
        arguments = ", ".join(f"{spec.name}: {spec!r}" for spec in self.inputs)
        return f"<ConcreteFunction {self.name}({arguments}) -> {self.structured_outputs!r}>"


def _spec_of(leaf: Any, tensors: Any) -> Any:
    if leaf is None or isinstance(leaf, _Operation):
        return None
    tensor = next(tensors)
    return TensorSpec(tensor.shape, tensor.dtype, tensor.node.name)


def _result_of(leaf: Any, tensors: Any, node: Node) -> Any:
    if leaf is None:
        return None
    return node if isinstance(leaf, _Operation) else next(tensors)


def _fitting(value: Any, spec: TensorSpec, name: str) -> Tensor:
    dtype, shape = dtypes.as_dtype(spec.dtype), _static(spec.shape)
    try:
        tensor = convert_to_tensor(value, dtype, spec.name or "arg")
    except errors.InvalidArgumentError as error:
        raise errors.InvalidValueError(
            f"{name}: argument '{spec.name}' must be {spec!r}, got {value!r}: {error.message}"
        ) from None
    if not tensor.static_shape.is_compatible_with(shape):
        raise errors.InvalidValueError(
            f"{name}: argument '{spec.name}' must be {spec!r}, got {value!r} of shape {tensor.static_shape}"
        )
    return tensor


class _Trace:
    """A trace that is under way, during which the function may be called again.

    Attributes:
        name: the name that the function will have.
        captured: the tensors that an earlier trace captured.
        recursive: True if the function called itself.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.captured: list[Tensor] = []
        self.recursive = False


class TracedFunction:
    """A Python function; a call of it, while a graph is being built, calls a function of the graph.

    Attributes:
        python_function: the function that is traced.
        name: part of the names of the library's functions: `__inference_<name>_<number>`.
    """

    def __init__(
        self,
        python_function: Callable[..., Any],
        name: str | None = None,
        input_signature: Sequence[Any] | None = None,
        output_signature: Any = None,
    ) -> None:
        self.python_function = python_function
        self.name: str = name or getattr(python_function, "__name__", "function").strip("<>")
        self.__name__ = self.name
        self.__doc__ = python_function.__doc__
        self.__wrapped__ = python_function
        self.input_signature = input_signature
        self.output_signature = output_signature
        self._parameters = inspect.signature(python_function)
        self._under_way: dict[Hashable, _Trace] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self._given(args, kwargs)
        tensors = [tensor for tensor in given.tensors if tensor is not None]
        trace = self._under_way.get(given.signature)
        if trace is not None:
            return self._call_itself(trace, tensors)
        return self._traced(given).call(tensors)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """The trace for these arguments; a tensor may be described by a `TensorSpec`.

        Without arguments, that of the input signature.
        """
        if not args and not kwargs and self.input_signature is not None:
            args = tuple(self.input_signature)
        described = [list(args), kwargs]
        # Placeholders for described tensors are made in a temporary graph.
        with Graph():
            values = [
                placeholder(leaf.dtype, leaf.shape, leaf.name) if isinstance(leaf, TensorSpec) else leaf
                for leaf in leaves_of(described)
            ]
            args, kwargs = pack(described, values)
            given = self._given(args, kwargs)
        return self._traced(given)

    def traces(self, graph: Graph) -> list[ConcreteFunction]:
        """The traces of the function in a graph."""
        return list(self._known(graph).values())

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<TracedFunction {self.name}{self._parameters}>"

    # Arguments

    def _given(self, args: Sequence[Any], kwargs: dict[str, Any]) -> _Given:
        try:
            bound = self._parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}; signature: {self.name}{self._parameters}") from None
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        specs = self._specs()
        found = _Given(arguments, [], [], [], [])
        for parameter, value in list(arguments.items()):
            if isinstance(spec := specs.get(parameter), TensorSpec) and isinstance(value, list | tuple):
                value = arguments[parameter] = np.array(value)  # one tensor, not a structure of several
            leaves = leaves_of(value)
            wanted = [None] * len(leaves) if spec is None else _specs_in(spec)
            if len(wanted) != len(leaves):
                raise errors.InvalidValueError(
                    f"{self.name}(): the input signature has {len(wanted)} tensors for '{parameter}', got {len(leaves)}"
                )
            for leaf, one in zip(leaves, wanted, strict=True):
                tensor = self._tensor(leaf, one, parameter)
                found.leaves.append(leaf)
                found.tensors.append(tensor)
                if tensor is not None:
                    found.names.append((one.name if one is not None else None) or parameter)
                    found.shapes.append(tensor.static_shape if one is None else _static(one.shape))
        return found

    def _specs(self) -> dict[str, Any]:
        """The parts of the input signature by parameter."""
        if self.input_signature is None:
            return {}
        names = [name for name in self._parameters.parameters if name != "self"]
        if len(self.input_signature) > len(names):
            raise errors.InvalidValueError(
                f"the input signature of {self.name} has {len(self.input_signature)} entries, "
                f"but it takes {len(names)} arguments: {self.name}{self._parameters}"
            )
        return dict(zip(names, self.input_signature, strict=False))

    def _tensor(self, leaf: Any, spec: TensorSpec | None, parameter: str) -> Tensor | None:
        """A leaf as the tensor to pass; None for a Python value or a variable, which belongs to the trace."""
        if spec is not None:
            named = replace(spec, name=spec.name or parameter)
            return _fitting(leaf, named, self.name)
        if isinstance(leaf, Tensor):
            return leaf
        if isinstance(leaf, np.ndarray | np.generic):
            return convert_to_tensor(leaf, name=parameter)
        return None

    # Tracing

    def _known(self, graph: Graph) -> dict[Any, ConcreteFunction]:
        """The traces in a graph, which the graph keeps."""
        kept = graph.collections.get_ref(_TRACES)
        if not kept:
            kept.append({})
        found: dict[Any, ConcreteFunction] = kept[0].setdefault(self, {})
        return found

    def _traced(self, given: _Given) -> ConcreteFunction:
        graph = require_graph()
        known, signature = self._known(graph), given.signature
        for home in (graph.outermost, graph):
            if (found := known.get((home, signature))) is not None:
                return found
        if len(self._under_way) >= _MOST_UNDER_WAY:
            raise errors.InvalidStateError(
                f"{self.name} calls itself with ever new signatures, now ({given}): what changes from call to call "
                "must be a tensor, not a Python value"
            )
        trace = _Trace(free_name(graph.library, f"__inference_{self.name}"))
        self._under_way[signature] = trace
        try:
            made = self._trace(given, graph, trace)
            while trace.recursive and made.captured_inputs != trace.captured:
                trace.captured = made.captured_inputs
                made = self._trace(given, graph, trace)
        finally:
            del self._under_way[signature]
        finished(made.graph, made.name)
        outside = all(tensor.graph is graph.outermost for tensor in made.captured_inputs)
        known[graph.outermost if outside else graph, signature] = made
        return made

    def _trace(self, given: _Given, outer: Graph, trace: _Trace) -> ConcreteFunction:
        graph = FuncGraph(trace.name, outer)
        described = iter(zip(given.names, given.shapes, strict=True))
        inside = []
        for leaf, tensor in zip(given.leaves, given.tensors, strict=True):
            if tensor is None:
                inside.append(leaf)
                continue
            name, shape = next(described)
            inside.append(graph.argument(tensor, name))
            inside[-1].node.shapes = (shape,)
        for tensor in trace.captured:
            graph.capture(tensor)
        packed = given.packed(inside)
        result: list[Any] = []

        def build() -> list[Any]:
            bound = inspect.BoundArguments(self._parameters, packed)
            result.append(self.python_function(*bound.args, **bound.kwargs))
            return [leaf for leaf in leaves_of(result[0]) if leaf is not None and not isinstance(leaf, Node)]

        built(graph, build)
        template = pack(result[0], [_Operation() if isinstance(leaf, Node) else leaf for leaf in leaves_of(result[0])])
        captured = [_from_outside(tensor) for tensor in graph.captures]
        return ConcreteFunction(graph, NameAttrList(trace.name, {}), template, captured)

    def _call_itself(self, trace: _Trace, tensors: Sequence[Tensor]) -> Any:
        """A call within the trace: the function does not exist yet, so its results must be declared."""
        if self.output_signature is None:
            raise errors.InvalidStateError(
                f"{self.name} calls itself: say what it gives, @aexec.function(output_signature=...)"
            )
        trace.recursive = True
        specs = _specs_in(self.output_signature)
        attrs = {
            "f": NameAttrList(trace.name, {}),
            "Tout": [dtypes.as_dtype(spec.dtype) for spec in specs],
            "_output_shapes": [_static(spec.shape) for spec in specs],
        }
        node = create_node("StatefulPartitionedCall", {"args": [*tensors, *trace.captured]}, attrs)
        return pack(self.output_signature, list(node.outputs))


def _specs_in(structure: Any) -> list[TensorSpec]:
    """The `TensorSpec`s of a signature."""
    found = leaves_of(structure)
    for spec in found:
        if not isinstance(spec, TensorSpec):
            raise errors.InvalidValueError(f"a signature is made of aexec.TensorSpec, got {spec!r}")
    return found


def _from_outside(tensor: Tensor) -> Tensor:
    """The origin of a captured tensor: the outermost graph that has it."""
    while isinstance(tensor.graph, FuncGraph):
        outside = next((one for one, inside in tensor.graph.captures.items() if inside == tensor), None)
        if outside is None:
            break
        tensor = outside
    return tensor


def function(
    python_function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    input_signature: Sequence[Any] | None = None,
    output_signature: Any = None,
) -> Any:
    """Turn a Python function over tensors into a function of the graph in which it is called.

    ::

        @aexec.function
        def step(x, rate):
            return x - rate * aexec.ops.tanh(x)

    It is called to build its body when it is called with other types, static shapes or Python values than before.
    Tensors from outside may be used in it, and variables in resource form read and changed; its side effects happen in
    the order of the program whenever the call runs, whether or not its results are used.  Inside, `cond` and
    `while_loop` are functional.

    Args:
        name: of the function in the library, beside a number; by default that of the Python function.
        input_signature: for each argument a `TensorSpec`, or a structure of them: it is traced once, for these.
        output_signature: `TensorSpec`s of the results, in their structure; needed for a function that calls itself.

    Returns:
        a `TracedFunction`; without `python_function`, a decorator.
    """
    if python_function is None:
        return lambda decorated: TracedFunction(decorated, name, input_signature, output_signature)
    return TracedFunction(python_function, name, input_signature, output_signature)
