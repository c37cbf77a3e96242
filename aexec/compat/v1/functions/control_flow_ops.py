"""Conditionals, loops, functions of rows, assertions and printing with TensorFlow's arguments.

Next to read: `aexec/control_flow/while_loop.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from aexec import ops
from aexec.autodiff import gradients as _gradients
from aexec.autodiff import jacobian as _jacobian
from aexec.client.building import control_dependencies, group, name_scope
from aexec.compat.v1.namespace import chosen, listed, refuse
from aexec.control_flow import cond as _cond
from aexec.control_flow import map_fn as _rows
from aexec.control_flow import tensor_array as _tensor_array
from aexec.control_flow import while_loop as _while_loop
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.nodes.node import Node, Tensor
from aexec.graph.op_functions import convert_to_tensor, require_graph

__all__ = [
    "Assert",
    "Print",
    "TensorArray",
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_less",
    "assert_less_equal",
    "assert_non_negative",
    "assert_positive",
    "assert_rank",
    "case",
    "comparison_assertion",
    "cond",
    "foldl",
    "foldr",
    "gradients",
    "hessians",
    "map_fn",
    "no_op",
    "print_",
    "scan",
    "sign_assertion",
    "switch_case",
    "tables_initializer",
    "told",
    "vectorized_map",
    "while_loop",
]


def no_op(name: str | None = None) -> Node:
    """`tf.no_op`."""
    return ops.no_op(name=name)


def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Callable[[], Any] | None = None,
    fn2: Callable[[], Any] | None = None,
) -> Any:
    """`tf.cond`."""
    branches = chosen(..., true_fn=true_fn, fn1=fn1), chosen(..., false_fn=false_fn, fn2=fn2)
    return _cond.cond(pred, *branches, name)


def case(
    pred_fn_pairs: Mapping[Any, Callable[[], Any]] | Sequence[tuple[Any, Callable[[], Any]]],
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """`tf.case`."""
    return _cond.case(pred_fn_pairs, default, exclusive=exclusive, name=name)


def switch_case(
    branch_index: Any, branch_fns: Any, default: Callable[[], Any] | None = None, name: str = "switch_case"
) -> Any:
    """`tf.switch_case`: run the branch with an index; an unknown index runs the default, or else the last branch."""
    pairs = dict(branch_fns) if isinstance(branch_fns, Mapping) else None
    if pairs is None:
        listed_ = [entry if isinstance(entry, tuple) else (number, entry) for number, entry in enumerate(branch_fns)]
        pairs = dict(listed_)
    if not pairs:
        raise errors.InvalidValueError("branch_fns must have at least one function")
    index = convert_to_tensor(branch_index)
    otherwise = pairs[max(pairs)] if default is None else default
    return case([(ops.equal(index, number), branch) for number, branch in sorted(pairs.items())], otherwise, name=name)


def vectorized_map(fn: Callable[[Any], Any], elems: Any, fallback_to_while_loop: bool = True, warn: bool = True) -> Any:
    """`tf.vectorized_map`: a function of each row, whose results may have other types."""
    from aexec.control_flow.structure import leaves_of, pack

    first = pack(elems, [convert_to_tensor(leaf)[0] for leaf in leaves_of(elems)])
    found = fn(first)
    types = pack(found, [convert_to_tensor(leaf).dtype.base for leaf in leaves_of(found)])
    return map_fn(fn, elems, types)


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
    maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """`tf.while_loop`; the session decides where memory is swapped to."""
    found = _while_loop.while_loop(
        cond,
        body,
        loop_vars,
        shape_invariants=shape_invariants,
        parallel_iterations=parallel_iterations,
        maximum_iterations=maximum_iterations,
        name=name,
    )
    if not back_prop:
        found = _stopped(found)
    alone = not return_same_structure and isinstance(found, list | tuple) and len(found) == 1
    return found[0] if alone else found


def _stopped(structure: Any) -> Any:
    from aexec.control_flow.structure import leaves_of, pack

    return pack(structure, [ops.stop_gradient(leaf) for leaf in leaves_of(structure)])


def map_fn(
    fn: Callable[[Any], Any],
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    """`tf.map_fn`."""
    types = chosen(dtype=dtype, fn_output_signature=fn_output_signature)
    found = _rows.map_fn(
        fn, elems, types, parallel_iterations=parallel_iterations or 10, infer_shape=infer_shape, name=name
    )
    return found if back_prop else _stopped(found)


def scan(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """`tf.scan`."""
    settings: dict[str, Any] = {"parallel_iterations": parallel_iterations, "infer_shape": infer_shape}
    found = _rows.scan(fn, elems, initializer, reverse=reverse, name=name, **settings)
    return found if back_prop else _stopped(found)


def _fold(ours: Callable[..., Any], name: str) -> Callable[..., Any]:
    def fold(
        fn: Callable[[Any, Any], Any],
        elems: Any,
        initializer: Any = None,
        parallel_iterations: int = 10,
        back_prop: bool = True,
        swap_memory: bool = False,
        name: str | None = None,
    ) -> Any:
        found = ours(fn, elems, initializer, parallel_iterations=parallel_iterations, name=name)
        return found if back_prop else _stopped(found)

    fold.__name__ = fold.__qualname__ = name
    fold.__doc__ = f"`tf.{name}`."
    return fold


foldl = _fold(_rows.foldl, "foldl")
foldr = _fold(_rows.foldr, "foldr")


class TensorArray(_tensor_array.TensorArray):
    """`tf.TensorArray`."""

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Any = None,
        flow: Any = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        refuse("TensorArray", handle=handle, flow=flow)
        super().__init__(
            dtype,
            0 if size is None else size,
            dynamic_size=bool(dynamic_size),
            clear_after_read=clear_after_read is not False,
            name=name or tensor_array_name,
            infer_shape=infer_shape,
            element_shape=element_shape,
        )

    def grad(self, source: str, flow: Any = None, name: str | None = None) -> TensorArray:
        """The array that sums the gradients of this array's elements.

        Args:
            source: name of a gradient computation; each source has its own array.
            flow: flow of this array after all elements are written; by default its current flow.
        """
        with name_scope(name or "TensorArrayGrad"):
            handle, _ = ops.tensor_array_grad_v3(self.handle, self.flow if flow is None else flow, source=source)
            with control_dependencies([handle]):
                made = copy(self)
                made.handle, made.flow = handle, ops.identity(self.flow if flow is None else flow, name="gradient_flow")
                return made


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: Any = None,
    stop_gradients: Any = None,
    unconnected_gradients: Any = "none",
) -> list[Any]:
    """`tf.gradients`."""
    return _gradients.gradients(
        ys,
        xs,
        grad_ys,
        stop_gradients=stop_gradients or (),
        unconnected=getattr(unconnected_gradients, "value", unconnected_gradients),
        gate_gradients=gate_gradients,
        aggregation=aggregation_method or "add_n",
        colocate=colocate_gradients_with_ops,
        name=name,
    )


def hessians(
    ys: Any,
    xs: Any,
    name: str = "hessians",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: Any = None,
) -> list[Any]:
    """`tf.hessians`."""
    with name_scope(name):
        return list(_jacobian.hessians(ys, xs if isinstance(xs, list | tuple) else [xs]))


# Checks and prints of a run


def Assert(condition: Any, data: Sequence[Any], summarize: int | None = None, name: str | None = None) -> Node:  # noqa: N802
    """`tf.Assert`."""
    return ops.assert_(condition, listed("data", data), summarize=summarize or 3, name=name)  # noqa: PT009


def told(message: str | None, data: Sequence[Any] | None, otherwise: Sequence[Any]) -> list[Any]:
    """The data that a failed check prints: its message, then the given data, by default `otherwise`."""
    return [*([message] if message else []), *(data or otherwise)]


def comparison_assertion(name: str, compare: Callable[..., Tensor]) -> Callable[..., Node]:
    """Make an assertion that an elementwise comparison of x and y holds everywhere."""

    def check(
        x: Any,
        y: Any,
        data: Sequence[Any] | None = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Node:
        with name_scope(name or check.__name__):
            left = convert_to_tensor(x)
            right = convert_to_tensor(y, left.dtype.base)
            holds = compare(left, right)
            every = ops.all(holds, ops.range(0, ops.rank(holds), 1))
            said = [f"{check.__name__} does not hold: x, y", left, right]
            return Assert(every, told(message, data, said), summarize)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"`tf.{name}`."
    return check


def sign_assertion(name: str, against: Callable[..., Node]) -> Callable[..., Node]:
    """Make an assertion that compares each element with 0, by one that `comparison_assertion` made."""

    def check(
        x: Any,
        data: Sequence[Any] | None = None,
        summarize: int | None = None,
        message: str | None = None,
        name: str | None = None,
    ) -> Node:
        return against(x, 0, data, summarize, message, name or check.__name__)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"`tf.{name}`."
    return check


assert_equal = comparison_assertion("assert_equal", ops.equal)
assert_less = comparison_assertion("assert_less", ops.less)
assert_less_equal = comparison_assertion("assert_less_equal", ops.less_equal)
assert_greater = comparison_assertion("assert_greater", ops.greater)
assert_greater_equal = comparison_assertion("assert_greater_equal", ops.greater_equal)


assert_positive = sign_assertion("assert_positive", assert_greater)
assert_non_negative = sign_assertion("assert_non_negative", assert_greater_equal)


def assert_rank(
    x: Any,
    rank: int,
    data: Any = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Node:
    """`tf.assert_rank`: checks now if the rank is known, else in each run."""
    value = convert_to_tensor(x)
    if value.static_shape.rank is not None and value.static_shape.rank != rank:
        raise errors.InvalidValueError(
            f"{message or ''} Tensor {value.name} must have rank {rank}, has {value.static_shape}"
        )
    return assert_equal(ops.rank(value), rank, data, summarize, message, name or "assert_rank")


def Print(  # noqa: N802
    input_: Any,
    data: Sequence[Any],
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """`tf.Print`."""
    return ops.print(input_, listed("data", data), message=message, first_n=first_n, summarize=summarize, name=name)


def tables_initializer(name: str = "init_all_tables") -> Node:
    """`tf.tables_initializer`."""
    return group(*require_graph().collections.get(GraphKeys.TABLE_INITIALIZERS), name=name)


def print_(*inputs: Any, **kwargs: Any) -> Node:
    """`tf.print`: an operation that prints to standard error, or `output_stream`.

    Raises:
        UnimplementedError: the stream is not one of the process's.
    """
    stream = kwargs.pop("output_stream", sys.stderr)
    summarize, sep, name = kwargs.pop("summarize", 3), kwargs.pop("sep", " "), kwargs.pop("name", None)
    end = kwargs.pop("end", "\n")
    if kwargs:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {kwargs}")
    streams = {sys.stderr: "stderr", sys.stdout: "stdout"}
    where = stream if isinstance(stream, str) else streams.get(stream)
    if where is None:
        refuse("print", output_stream=stream)
    with name_scope(name or "print"):
        said = [one.replace("{}", "{{}}") if isinstance(one, str) else "{}" for one in inputs]
        values = [convert_to_tensor(one) for one in inputs if not isinstance(one, str)]
        text = ops.string_format(values, template=sep.join(said), placeholder="{}", summarize=summarize)
        return ops.print_v2(text, output_stream=where, end=end)
