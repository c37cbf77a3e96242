"""The gradient of a function as a function, which `SymbolicGradient` calls.

Its body is the function's, so the forward pass runs again, followed by the gradient's nodes.
Next to read: `parted_body.py`, which makes two functions of the two.
"""

from __future__ import annotations

from aexec import proto
from aexec.autodiff.aggregation import as_dense
from aexec.autodiff.gradients import gradients_in_body, is_differentiable
from aexec.autodiff.missing_gradients import gradient_dtype, zeros_for
from aexec.autodiff.parted_body import not_again
from aexec.client.building import placeholder
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.func_graph import body_of
from aexec.graph.function_def import add_function, free_name
from aexec.graph.graph import Graph
from aexec.graph.nodes.function_library import FunctionLibrary

__all__ = ["made_gradient"]


def made_gradient(library: FunctionLibrary, versions: proto.VersionDef, function: NameAttrList) -> NameAttrList:
    """Add the gradient function of a function to its library.  Raises what `gradients` raises."""
    outer = Graph()
    outer.library, outer.versions = library, versions
    signature = library.op_def(function.name)
    assert signature is not None
    with outer:
        given = [placeholder(dtype) for dtype in signature.input_types({**signature.defaults, **function.attrs})]
    with not_again(function.name):
        body = body_of(outer, function, given)
        arguments = list(body.inputs)
        arrive = [body.argument(y, "grad", dtype=gradient_dtype(y)) for y in body.outputs]
        ways = [i for i, y in enumerate(body.outputs) if is_differentiable(y.dtype)]
        xs = [x for x in arguments if is_differentiable(x.dtype)]
        made = {}
        if ways and xs:
            call = body.build_state.unique_name("gradients", "")
            found = gradients_in_body([body.outputs[i] for i in ways], xs, [arrive[i] for i in ways], call)
            made = dict(zip(xs, map(as_dense, found), strict=True))
        with body:
            body.outputs = [zeros_for(x) if made.get(x) is None else made[x] for x in arguments]
    return add_function(body, free_name(library, f"__gradient_{function.name}"))
