"""One Python function per registered op: `aexec.ops.mat_mul(a, b, transpose_a=True, name="m")`.

The functions are made from the op definitions when they are first used, so ops of a loaded library have functions too.
The parameters are the inputs, then the attrs (those that the inputs' types imply may be left out), then `name=`.  The
result is a tensor, a list of tensors for a list output, a named tuple of these for several outputs, or the node if it
has no outputs.
"""

from __future__ import annotations

import collections
import functools
import inspect
import keyword
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aexec.framework import dtypes, errors
from aexec.framework.dtypes import DType
from aexec.framework.indexed_slices import IndexedSlices
from aexec.framework.op_contract import op_registry
from aexec.framework.wire.attr_value import TensorAttr
from aexec.framework.wire.node_def import check_attrs
from aexec.framework.wire.op_def import ArgDef, OpDef
from aexec.graph.conversions import registered_conversion
from aexec.graph.graph import Graph, current_graph
from aexec.graph.nodes.node import Node, Tensor, TensorOperators
from aexec.graph.shape_refiner import infer_shapes
from aexec.graph.tensor_proxy import TensorProxy

__all__ = [
    "constant_array",
    "convert_to_tensor",
    "create_node",
    "function_names",
    "make_function",
    "require_graph",
    "signature_of",
    "snake_case",
    "suggest",
]


@functools.cache
def snake_case(op: str) -> str:
    """Return the function name of an op, by the rule of TensorFlow's generated functions: `Conv2D` → `conv2d`.

    An underscore goes before a capital that follows a small letter or comes before one.
    """
    letters = []
    for index, letter in enumerate(op):
        after_small = index > 0 and op[index - 1].islower()
        before_small = 0 < index < len(op) - 1 and op[index + 1].islower()
        letters.append("_" + letter if letter.isupper() and (after_small or before_small) else letter)
    name = "".join(letters).lower()
    return f"{name}_" if keyword.iskeyword(name) else name


def function_names() -> Mapping[str, str]:
    """Return function name → op for all registered ops except internal ones (`_Arg`)."""
    return _names_of(tuple(op_registry.global_registry.ops()))


@functools.lru_cache(maxsize=1)  # called at the first use of each function
def _names_of(ops: tuple[str, ...]) -> Mapping[str, str]:
    return {snake_case(op): op for op in ops if not op.startswith("_")}


def suggest(name: str) -> str:
    """Return `; did you mean …?` with the function names most similar to `name`, or ""."""
    import difflib

    near = difflib.get_close_matches(name, function_names(), n=3)
    return f"; did you mean {', '.join(near)}?" if near else ""


def require_graph() -> Graph:
    """Return the graph being built.  Raises FailedPreconditionError outside a `with graph:` block."""
    graph = current_graph()
    if graph is None:
        raise errors.InvalidStateError("no graph is being built: use `with aexec.Graph() as graph:`")
    return graph


class _Literal(NamedTuple):
    """A checked and converted Python value among a node's inputs; `add` makes it a constant in the node's scope."""

    array: Any
    dtype: DType
    name: str

    def add(self, graph: Graph | None, name: str) -> Tensor:
        attrs = {"value": TensorAttr(self.array, self.dtype), "dtype": self.dtype}
        return create_node("Const", {}, attrs, name=name, graph=graph).output(0)


class _Packed(NamedTuple):
    """A list with tensors in it among a node's inputs; `add` makes a node that packs them."""

    items: tuple[_Source, ...]
    dtype: DType
    name: str

    def add(self, graph: Graph | None, name: str) -> Tensor:
        graph = require_graph() if graph is None else graph
        with graph, graph.build_state.name_scope(name) as scope:
            tensors = [_tensor(item, graph) for item in self.items]
            return create_node("Pack", {"values": tensors}, {}, name=scope, graph=graph).output(0)


class _Rows(NamedTuple):
    """IndexedSlices among a node's inputs; `add` makes the whole tensor, in which all other rows are zero."""

    slices: IndexedSlices[Tensor]
    dtype: DType
    name: str

    def add(self, graph: Graph | None, name: str) -> Tensor:
        graph = require_graph() if graph is None else graph
        shape = self.slices.dense_shape
        if shape is None:
            raise errors.InvalidValueError(
                f"rows of '{self.slices.values.name}' cannot be made a whole tensor: its shape is not known"
            )
        with graph, graph.build_state.name_scope(name) as scope:
            inputs = {"data": self.slices.values, "segment_ids": self.slices.indices, "num_segments": shape[0]}
            return create_node("UnsortedSegmentSum", inputs, {}, name=scope, graph=graph).output(0)


def _tensor(source: _Source, graph: Graph) -> Tensor:
    """Return the tensor of a source, added to the graph in the current scope if necessary."""
    if isinstance(source, TensorProxy):
        return source.as_tensor()
    return source if isinstance(source, Tensor) else source.add(graph, graph.build_state.unique_name(source.name) + "/")


def convert_to_tensor(value: Any, dtype: DType | None = None, name: str = "Const") -> Tensor:
    """Return `value` as a tensor of the current graph: itself if it is a tensor, else a new constant.

    A list with tensors in it is packed; `IndexedSlices` become the whole tensor that they are rows of.

    Raises:
        InvalidArgumentError: the tensor has another dtype than `dtype`, or the value does not fit it.
    """
    source = _source_to_convert(value, dtype, name)
    if isinstance(source, TensorProxy):
        return source.as_tensor()
    return source if isinstance(source, Tensor) else source.add(None, name)


def _source_to_convert(value: Any, dtype: DType | None, name: str) -> _Source:
    """Like `_source`, but an InvalidTypeError counts as Python's ValueError for a tensor, else as its TypeError."""
    try:
        return _source(value, dtype, name)
    except errors.InvalidTypeError as error:
        errors.as_python(error, ValueError if isinstance(value, TensorOperators) else TypeError)
        raise


# An input for which nothing has been added to the graph yet.
_Source = Tensor | TensorProxy | _Literal | _Packed | _Rows
# The sources that are not part of a graph yet.
_UNMADE = (_Literal, _Packed, _Rows)


def _source(value: Any, dtype: DType | None, name: str) -> _Source:
    """Check and convert a value without adding anything to the graph.  Raises what `convert_to_tensor` raises."""
    if isinstance(value, TensorProxy) and dtype is dtypes.resource:
        value = value.reference
    if isinstance(value, Tensor | TensorProxy):
        if dtype is not None and value.dtype.base is not dtype.base:
            described = value.element if isinstance(value, TensorProxy) else value
            raise errors.InvalidTypeError(
                f"Tensor '{described.name}' has type {value.dtype}, expected {dtype}; use aexec.ops.cast"
            )
        return value
    if isinstance(value, Node):
        raise errors.InvalidTypeError(f"operation '{value.name}' is no tensor: use one of its outputs")
    if isinstance(value, IndexedSlices):
        return _Rows(value, value.values.dtype.base, name)
    if (found := registered_conversion(value, dtype, name)) is not None:
        return found
    try:
        return _Literal(*constant_array(value, dtype), name)
    except errors.InvalidArgumentError:
        inside = _type_inside(value) if isinstance(value, list | tuple) else None
        if inside is None:
            raise
    wanted = inside if dtype is None else dtype
    return _Packed(tuple([_source(item, wanted, str(index)) for index, item in enumerate(value)]), wanted, name)


def _type_inside(value: Any) -> DType | None:
    """Return the dtype of the first tensor in a nested list, or None if there is none."""
    if isinstance(value, Tensor | TensorProxy):
        return value.dtype.base
    if isinstance(value, list | tuple):
        return next((found for item in value if (found := _type_inside(item)) is not None), None)
    return None


def constant_array(value: Any, dtype: DType | None) -> tuple[Any, DType]:
    """Return a Python value as an array with its dtype: Python floats become float32, ints int32 if they fit.

    Raises:
        InvalidArgumentError: the value is not an array, is of another kind than `dtype`, or has a number that does
            not fit.
    """
    if value is None:
        kind = "" if dtype is None else f" of type {dtype}"
        raise errors.InvalidValueError(f"cannot make a constant{kind} from None: None values not supported.")
    try:
        array = np.asarray(value)
        dtype = dtype or _natural_type(array, typed=isinstance(value, np.ndarray | np.generic))
        if dtype is dtypes.string:
            return _string_array(value), dtype
        array = _checked(array, value, dtype)
        with np.errstate(over="ignore"):
            array = np.array(array, dtype.np)
    except errors.OpError:
        raise
    except (ValueError, TypeError, OverflowError) as error:
        kind = "" if dtype is None else f" of type {dtype}"
        wrong = errors.InvalidArgumentError(f"cannot make a constant{kind} from {_brief(value)}: {error}")
        raise errors.as_python(wrong, TypeError if isinstance(error, TypeError) else ValueError) from None
    array.flags.writeable = False
    return array, dtype


def _natural_type(array: Any, *, typed: bool) -> DType:
    """Return the dtype of a constant for which none is given."""
    if array.dtype.kind in "OSU":
        return dtypes.string
    if not typed:
        if array.dtype == np.float64:
            return dtypes.float32
        if array.dtype == np.int64 and array.size and array.min() >= -(2**31) and array.max() < 2**31:
            return dtypes.int32
    return dtypes.from_numpy(array.dtype)


def _checked(array: Any, value: Any, dtype: DType) -> Any:
    """Return the array of `value` if it can be converted to `dtype` without loss; raise InvalidArgumentError if not."""
    typed = isinstance(value, np.ndarray | np.generic)
    integral = dtype.is_integer or dtype.is_quantized
    if integral and not typed and array.dtype.kind == "f":
        array = np.array(value, object)  # as floats, large integers beside small ones would be rounded
    if not _stands_for(array, dtype, typed=typed):
        raise errors.InvalidTypeError(f"cannot make a constant of type {dtype} from {_brief(value)}")
    if integral and array.size and not (array.min() >= dtype.min and array.max() <= dtype.max):
        raise errors.InvalidValueError(
            f"cannot make a constant of type {dtype} from {_brief(value)}: "
            f"a value does not fit ({dtype.min} to {dtype.max})"
        )
    return array


def _stands_for(array: Any, dtype: DType, *, typed: bool) -> bool:
    """True if values of this array's type may become `dtype`.  Values without a type of their own are more flexible."""
    given = array.dtype.kind
    if (array.size == 0 and not typed) or dtype.np.kind == "O":
        return True
    if given == "O" and not typed and dtype is not dtypes.bool_:
        return all(type(item) is int for item in array.flat)  # integers that need more than 64 bits
    if dtype.is_integer or dtype.is_quantized:
        return given in "iub" or dtypes.from_numpy(array.dtype) is dtype
    if dtype is dtypes.bool_:
        return given == "b" or (typed and given in "iu")
    return given not in ("OSU" if dtype.is_complex else "OSUc")


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _string_array(value: Any) -> Any:
    source = np.array(value, object)
    flat = [item.encode() if isinstance(item, str) else item for item in source.ravel().tolist()]
    for item in flat:
        if not isinstance(item, bytes):
            raise errors.InvalidTypeError(f"cannot make a string constant from {item!r}")
    items = np.empty(len(flat), object)
    items[:] = flat
    array = items.reshape(source.shape)
    array.flags.writeable = False
    return array


def create_node(
    op: str | OpDef,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    *,
    name: str | None = None,
    graph: Graph | None = None,
) -> Node:
    """Add a node to the current graph, in its scopes.

    Values among the inputs become constants in the scope of the node's name, with TensorFlow's names: `add/y` for the
    argument `y` of the node `add`, `concat/values_1` for an element of a list.  They get the dtype of the tensors in
    the same argument, or in arguments of the same type.

    Args:
        op: op type, or a definition (of a function of the graph's library).
        inputs: argument name → tensor or value, or a list of these for list arguments.
        attrs: attr name → value; attrs that the inputs imply may be left out.
        name: wanted name, made unique; None for the op's.

    Raises:
        InvalidTypeError: an input or attr has a type that the op does not take.
        InvalidValueError: an input or attr is not valid otherwise, or shapes are inconsistent.
        UnknownNameError: the op is not registered.
        InvalidStateError: no graph is being built, or it is finalized.
    """
    try:
        return _create_node(op, inputs, attrs, name, graph)
    except errors.OpError as error:
        errors.as_python(error)
        raise


def _create_node(
    op: str | OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], name: str | None, graph: Graph | None
) -> Node:
    op_def = op if isinstance(op, OpDef) else op_registry.global_registry.lookup(op).op_def
    graph = graph if graph is not None else require_graph()
    values = {k: v for k, v in attrs.items() if v is not None}
    sources: list[_Source] = []
    for arg in op_def.inputs:
        if arg.name not in inputs:
            raise errors.InvalidValueError(f"{op_def.name}() is missing its input '{arg.name}'")
        sources.extend(_convert_argument(op_def, arg, inputs, values))
    foreign = [source for source in sources if not isinstance(source, _UNMADE) and source.graph is not graph]
    for source in foreign:
        graph.check_foreign(source)
    state = graph.build_state
    state.complete_attrs(op_def, values)
    checked = check_attrs(op_def, values, node=name or op_def.name)
    if foreign:
        _check_refs(op_def, checked, sources, graph)
    name = state.node_name(name, op_def.name)
    tensors = _add_sources(sources, graph, name)
    controls = state.control_inputs([tensor.node.id for tensor in tensors])
    if state.context is not None:
        with graph, state.name_scope(f"{name}/"):
            tensors = [state.context.take_in(tensor) for tensor in tensors]
            controls = state.context.controls(tensors, controls)
    node = graph.node_class(
        graph,
        len(graph.nodes),
        name,
        op_def,
        checked,
        inputs=tuple([tensor.endpoint for tensor in tensors]),
        control_inputs=controls,
        site=_call_site(),
    )
    if node.name in graph:
        raise errors.InvalidValueError(f"Node name '{node.name}' already exists in the Graph", node=node.name)
    infer_shapes([node], graph.nodes.__getitem__, graph.library, graph.versions.producer)
    state.request_device(node)
    graph.add_nodes([node])
    state.note_made(node)
    return node


def _add_sources(sources: list[_Source], graph: Graph, name: str) -> list[Tensor]:
    """Return the inputs of the node `name` as tensors; adds constants, and reads of variables, in its scope."""
    tensors = [source if isinstance(source, Tensor) else _added(source, graph, name) for source in sources]
    return [tensor if tensor.graph is graph else graph.capture(tensor) for tensor in tensors]


def _check_refs(op_def: OpDef, attrs: Mapping[str, Any], sources: list[_Source], graph: Graph) -> None:
    """Raise if a function's body would capture a variable's ref: functions are passed values only."""
    for source, dtype in zip(sources, op_def.input_types(attrs), strict=True):
        if dtype.is_ref and not isinstance(source, _UNMADE) and source.graph is not graph:
            raise errors.InvalidValueError(
                f"{op_def.name} takes the ref of {source!r}, which a function cannot be given: use a resource variable"
            )


def _added(source: TensorProxy | _Literal | _Packed | _Rows, graph: Graph, name: str) -> Tensor:
    if isinstance(source, _UNMADE):
        return source.add(graph, graph.build_state.unique_name(source.name, name) + "/")
    with graph, graph.build_state.name_scope(f"{name}/"):
        return source.as_tensor()


def _convert_argument(op_def: OpDef, arg: ArgDef, inputs: Mapping[str, Any], attrs: dict[str, Any]) -> list[_Source]:
    """Return an argument as sources, and set in `attrs` what it implies."""
    value = inputs[arg.name]
    if arg.is_ref and isinstance(value, TensorProxy):
        value = value.reference
    found: list[_Source]
    try:
        if arg.number_attr:
            found = _convert_list(value, _known_type(op_def, arg, inputs, attrs), arg.name)
            _imply(op_def, attrs, arg.number_attr, len(found))
        elif arg.type_list_attr:
            _check_list(value)
            given = attrs.get(arg.type_list_attr)
            wanted = [dtypes.as_dtype(t) for t in given] if given else [None] * len(value)
            pairs = enumerate(zip(value, wanted, strict=True))
            found = [_source(v, t, f"{arg.name}_{i}") for i, (v, t) in pairs]
            _imply(op_def, attrs, arg.type_list_attr, [source.dtype.base for source in found])
            return found
        else:
            found = [_source(value, _known_type(op_def, arg, inputs, attrs), arg.name)]
        if arg.type_attr and found:
            _imply(op_def, attrs, arg.type_attr, found[0].dtype.base)
        if arg.is_ref and any(not source.dtype.is_ref for source in found):
            raise errors.InvalidTypeError("expected a variable's ref, got a value")
    except errors.InvalidArgumentError as error:
        wrong = errors.InvalidArgumentError(f"Input '{arg.name}' of {op_def.name}: {error.message}")
        raise errors.as_python(wrong, TypeError if isinstance(error, TypeError) else ValueError) from None
    return found


def _convert_list(value: Any, wanted: DType | None, name: str) -> list[_Source]:
    _check_list(value)
    if wanted is None:
        wanted = next((v.dtype.base for v in value if isinstance(v, Tensor | TensorProxy)), None)
    found: list[_Source] = []
    for index, item in enumerate(value):
        found.append(_source(item, wanted, f"{name}_{index}"))
        wanted = found[0].dtype
    return found


def _check_list(value: Any) -> None:
    if isinstance(value, Tensor | np.ndarray | str | bytes) or not isinstance(value, Sequence):
        raise errors.InvalidTypeError(f"expected a list of tensors, got {value!r}")


def _known_type(op_def: OpDef, arg: ArgDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> DType | None:
    """Return the dtype an argument must have: the op's, that of an attr, or that of a tensor with the same attr."""
    if arg.type is not None:
        return arg.type
    given = attrs.get(arg.type_attr)
    if given is not None:
        return dtypes.as_dtype(given)
    if not isinstance(inputs[arg.name], Tensor | TensorProxy):
        for other in op_def.inputs:
            beside = inputs.get(other.name)
            if other.type_attr == arg.type_attr and isinstance(beside, Tensor | TensorProxy):
                return beside.dtype.base
        if isinstance(inputs[arg.name], list | tuple) and not inputs[arg.name]:
            return op_def.defaults.get(arg.type_attr)  # an empty list has no number to show the dtype: `sum(x, [])`
    return None


def _imply(op_def: OpDef, attrs: dict[str, Any], name: str, value: Any) -> None:
    given = attrs.setdefault(name, value)
    if isinstance(given, list) and isinstance(value, list):
        same = [dtypes.as_dtype(g) for g in given] == value
    else:
        same = dtypes.as_dtype(given) is value if isinstance(value, DType) else given == value
    if not same:
        wrong = errors.InvalidArgumentError(f"attr '{name}' of {op_def.name} is {given}, but the inputs imply {value}")
        raise errors.as_python(wrong, TypeError if isinstance(value, DType | list) else ValueError)


def _call_site() -> str | None:
    """Return `file:line` of the nearest caller outside aexec."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("aexec."):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def signature_of(op_def: OpDef) -> inspect.Signature:
    """Return the parameters of an op's function: inputs, attrs without default, then those with one, then `name`."""
    parameter = inspect.Parameter
    names: set[str] = set()
    implied = {a for arg in op_def.inputs for a in (arg.type_attr, arg.number_attr, arg.type_list_attr)}
    parameters = []
    for arg in op_def.inputs:
        is_list = bool(arg.number_attr or arg.type_list_attr)
        annotation = "Sequence[TensorLike]" if is_list else "TensorLike"
        parameters.append(parameter(_safe(arg.name, names), parameter.POSITIONAL_OR_KEYWORD, annotation=annotation))
    required, optional = [], []
    for attr in op_def.attrs:
        if attr.name in implied:
            continue
        annotation = _ANNOTATIONS.get(attr.type.removeprefix("list(").removesuffix(")"), "Any")
        if attr.is_list:
            annotation = f"Sequence[{annotation}]"
        safe = _safe(attr.name, names)
        if attr.has_default:
            optional.append(
                parameter(safe, parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=f"{annotation} | None")
            )
        else:
            required.append(parameter(safe, parameter.POSITIONAL_OR_KEYWORD, annotation=annotation))
    name = parameter("name", parameter.POSITIONAL_OR_KEYWORD, default=None, annotation="str | None")
    return inspect.Signature([*parameters, *required, *optional, name], return_annotation=_return_annotation(op_def))


_ANNOTATIONS = {
    "string": "str | bytes",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "type": "DTypeLike",
    "shape": "ShapeLike",
    "tensor": "Any",
    "func": "Any",
}


def _return_annotation(op_def: OpDef) -> str:
    kinds = ["list[Tensor]" if arg.number_attr or arg.type_list_attr else "Tensor" for arg in op_def.outputs]
    if not kinds:
        return "Node"
    return kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]"


def _safe(name: str, taken: set[str]) -> str:
    """Return a parameter name that is neither a keyword nor `name`, the parameter for the node's name."""
    safe = f"{name}_" if keyword.iskeyword(name) or name == "name" or name in taken else name
    taken.add(safe)
    return safe


def make_function(op_def: OpDef) -> Callable[..., Any]:
    """Return the function that adds a node of this op to the current graph."""
    signature = signature_of(op_def)
    inputs = [arg.name for arg in op_def.inputs]
    parameters = list(signature.parameters)
    input_parameters = dict(zip(parameters, inputs, strict=False))
    attr_parameters = {_safe(attr.name, set(parameters[: len(inputs)])): attr.name for attr in op_def.attrs}

    def function(*args: Any, **kwargs: Any) -> Any:
        implied = {k: kwargs.pop(k) for k in list(kwargs) if k not in signature.parameters and k in op_def.attr_map}
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{function.__name__}(): {error}; signature: {function.__name__}{signature}") from None
        given = bound.arguments
        name = given.pop("name", None)
        tensors = {input_parameters[k]: v for k, v in given.items() if k in input_parameters}
        attrs = {attr_parameters[k]: v for k, v in given.items() if k not in input_parameters}
        node = create_node(op_def, tensors, {**attrs, **implied}, name=name)
        return outputs_of(node)

    function.__name__ = function.__qualname__ = snake_case(op_def.name)
    function.__module__ = "aexec.ops"
    described: Any = function
    described.__signature__ = signature
    function.__doc__ = f"Add a node `{op_def.name}` to the current graph.\n\n{op_def}"
    return function


def outputs_of(node: Node) -> Any:
    """Return a node's outputs in the form of its op's signature."""
    if not node.num_outputs:
        return node
    ranges = node.op_def.output_ranges(node.attrs)
    results: list[Any] = []
    for arg in node.op_def.outputs:
        start, stop = ranges[arg.name]
        tensors = [node.output(i) for i in range(start, stop)]
        results.append(tensors if arg.number_attr or arg.type_list_attr else tensors[0])
    return results[0] if len(results) == 1 else _named_outputs(node.op_def)(*results)


@functools.lru_cache(maxsize=1024)
def _named_outputs(op_def: OpDef) -> Any:
    """Return the named tuple class for an op's outputs."""
    return collections.namedtuple(op_def.name, [arg.name for arg in op_def.outputs], rename=True)
