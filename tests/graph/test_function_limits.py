"""Functions that call themselves with ever larger attrs: import ends, and soon."""

from __future__ import annotations

from typing import Any

import pytest

from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.wire.attr_value import NameAttrList, Placeholder
from aexec.graph.function_body import instantiate
from aexec.graph.nodes.function_library import FunctionLibrary
from tests.support.programs.functions import function_def
from tests.support.programs.graphs import GraphBuilder

I = dtypes.int32  # noqa: E741
HOLDER = function_def("Holder(x: int32) -> y: int32", "f: func", "g: func", body=[], ret={"y": "x"})


def growing(**inner: Any) -> proto.FunctionDef:
    """Grow(f) calls itself with f = Holder(**inner)."""
    body = [
        (f"n{i}", "PartitionedCall", ["x"], {"Tin": [I], "Tout": [I], "f": NameAttrList("Grow", {"f": attr})})
        for i, attr in enumerate(inner.values())
    ]
    return function_def("Grow(x: int32) -> y: int32", "f: func", body=body, ret={"y": "n0:output:0"})


def import_calling(function: proto.FunctionDef) -> None:
    g = GraphBuilder()
    g.graph_def.library.function.extend([function, HOLDER])
    g.placeholder("x", I, [])
    g("y", "PartitionedCall", "x", Tin=[I], Tout=[I], f=NameAttrList("Grow", {"f": NameAttrList("Holder", {})}))
    g.graph()


f = Placeholder("f")


def test_attrs_that_nest_ever_deeper() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="nest functions more than 32 deep"):
        import_calling(growing(f=NameAttrList("Holder", {"f": f})))


def test_attrs_that_double() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="more than 1048576 bytes"):
        import_calling(growing(f=NameAttrList("Holder", {"f": f, "g": f, "h": f, "i": f, "j": f, "k": f, "l": f})))


def test_ever_new_attrs_that_do_not_grow() -> None:
    """Rotating and swapping twelve attrs gives 479 million instances; only so many are looked into."""
    names = [chr(ord("a") + i) for i in range(12)]
    rotated, swapped = names[1:] + names[:1], [names[1], names[0], *names[2:]]
    body = [
        (f"n{i}", "PermuteAttrs", ["x"], {name: Placeholder(value) for name, value in zip(names, order, strict=True)})
        for i, order in enumerate((rotated, swapped))
    ]
    ints = [f"{name}: int" for name in [*"abcdefghijkl"]]
    permute = function_def("PermuteAttrs(x: int32) -> y: int32", *ints, body=body, ret={"y": "n0:y:0"})
    g = GraphBuilder()
    g.graph_def.library.function.append(permute)
    g.placeholder("x", I, [])
    g("y", "PermuteAttrs", "x", **{name: i for i, name in enumerate(names)})
    assert g.graph().tensor("y").dtype is I


def test_long_chain_of_functions_has_shapes_up_to_some_depth() -> None:
    functions = [
        function_def("F0(x: int32) -> y: int32", body=[("n", "Identity", ["x"], {"T": I})], ret={"y": "n:output:0"})
    ]
    for i in range(1, 120):
        signature, called = f"F{i}(x: int32) -> y: int32", functions[-1].signature.name
        functions.append(function_def(signature, body=[("n", called, ["x"], {})], ret={"y": "n:y:0"}))
    g = GraphBuilder()
    g.graph_def.library.function.extend(functions)
    g.placeholder("x", I, [2])
    g("near", "F20", "x")
    g("far", "F119", "x")
    graph = g.graph()
    assert graph.node("near").shapes[0].dims == (2,)
    assert graph.node("far").shapes[0].dims is None


def test_large_value_may_be_passed_on_as_it_is() -> None:
    """Only what is put into a function attr anew counts."""
    same = function_def(
        "Grow(x: int32) -> y: int32",
        "f: func",
        body=[("n", "PartitionedCall", ["x"], {"Tin": [I], "Tout": [I], "f": Placeholder("f")})],
        ret={"y": "n:output:0"},
    )
    library = FunctionLibrary()
    library.add(same)
    library.add(HOLDER)
    big = NameAttrList("Holder", {"s": b"x" * 2**21})
    body = instantiate(library, "Grow", {"f": big}, proto.VersionDef(producer=2474))
    assert body.graph.node("n").attrs["f"].attrs["s"] == b"x" * 2**21
