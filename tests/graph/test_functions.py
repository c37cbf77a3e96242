"""Functions of a graph: names, bodies with their attrs bound, calls."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.function_body import instantiate
from aexec.graph.nodes.function_library import FunctionLibrary
from tests.support import gates
from tests.support.programs.graphs import GraphBuilder

# twice(x: T) -> y: T, with the type left open.
TWICE = """
signature {
  name: "twice"
  input_arg { name: "x" type_attr: "T" }
  output_arg { name: "y" type_attr: "T" }
  attr { name: "T" type: "type" }
}
node_def { name: "sum" op: "AddV2" input: "x" input: "x" attr { key: "T" value { placeholder: "T" } } }
ret { key: "y" value: "sum:z:0" }
"""


def function(text: str = TWICE, **replaced: str) -> proto.FunctionDef:
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text_format.Parse(text, proto.FunctionDef())


def calling(*functions: proto.FunctionDef) -> GraphBuilder:
    g = GraphBuilder()
    g.graph_def.library.function.extend(functions)
    return g


class TestLibrary:
    def test_namespace_is_flat_and_a_repeated_definition_is_one(self) -> None:
        library = FunctionLibrary()
        assert library.add(function())
        assert not library.add(function())
        assert list(library) == ["twice"]

    def test_another_function_of_a_taken_name_is_refused(self) -> None:
        library = FunctionLibrary()
        library.add(function())
        with pytest.raises(errors.InvalidArgumentError, match="a different function with the same name already exists"):
            library.add(function(AddV2="Mul"))
        with pytest.raises(errors.InvalidArgumentError, match="an op with the same name already exists"):
            library.add(function(twice="MatMul"))

    def test_second_gradient_of_a_function_is_refused(self) -> None:
        library = FunctionLibrary()
        library.add_gradient("f", "g")
        library.add_gradient("f", "g")
        with pytest.raises(errors.InvalidArgumentError, match="already has gradient function 'g'"):
            library.add_gradient("f", "h")

    def test_node_whose_op_is_a_function_has_its_signature(self) -> None:
        library = FunctionLibrary()
        library.add(function())
        assert [a.name for a in library.lookup_op("twice").inputs] == ["x"]
        assert library.lookup_op("MatMul").name == "MatMul"
        with pytest.raises(errors.NotFoundError, match="Op type not registered 'thrice'"):
            library.lookup_op("thrice")


class TestPlaceholders:
    """An attr of a body that says `$T` gets its value where the function is instantiated."""

    @pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64])
    def test_placeholders_are_bound(self, dtype: Any) -> None:
        library = FunctionLibrary()
        library.add(function())
        body = instantiate(library, "twice", {"T": dtype}, proto.VersionDef(producer=2474))
        assert body.argument_types == body.result_types == (dtype,)
        assert body.graph.node("sum").attrs["T"] is dtype

    def test_placeholders_inside_function_attrs_are_bound(self) -> None:
        outer = function(
            twice="outer", AddV2="PartitionedCall", **{'input: "x" input: "x"': 'input: "x"', "sum:z:0": "sum:output:0"}
        )
        attr = outer.node_def[0].attr
        del attr["T"]
        attr["Tin"].list.type.append(proto.DataType.DT_INT32)
        attr["Tout"].list.type.append(proto.DataType.DT_INT32)
        attr["f"].func.name = "twice"
        attr["f"].func.attr["T"].placeholder = "T"
        library = FunctionLibrary()
        library.add(function())
        library.add(outer)
        body = instantiate(library, "outer", {"T": dtypes.int32}, proto.VersionDef(producer=2474))
        assert body.graph.node("sum").attrs["f"] == NameAttrList("twice", {"T": dtypes.int32})

    def test_unbound_placeholder_is_refused(self) -> None:
        library = FunctionLibrary()
        library.add(function())
        with pytest.raises(errors.InvalidArgumentError, match="Failed to bind all placeholders in twice"):
            instantiate(library, "twice", {}, proto.VersionDef(producer=2474))

    def test_outside_a_function_they_are_refused(self) -> None:
        g = GraphBuilder()
        g.const("c", np.float32(1))
        g("n", "Neg", "c")
        g.graph_def.node[1].attr["T"].placeholder = "T"
        with pytest.raises(errors.InvalidArgumentError):
            g.graph()


class TestCalls:
    async def test_function_can_be_called_with_several_types(self) -> None:
        g = calling(function())
        g.const("f", np.float32(1.5))
        g.const("i", np.int32(4))
        for name, dtype in (("f", dtypes.float32), ("i", dtypes.int32)):
            g(f"twice_{name}", "twice", name)
            g.graph_def.node[-1].attr["T"].type = dtype.enum
        async with aexec.Session(g.graph()) as session:
            assert await session.run(["twice_f:0", "twice_i:0"]) == [3.0, 8]

    async def test_call_by_attr(self) -> None:
        g = calling(function())
        g.const("c", np.float32(2))
        g(
            "call",
            "PartitionedCall",
            "c",
            Tin=[dtypes.float32],
            Tout=[dtypes.float32],
            f=NameAttrList("twice", {"T": dtypes.float32}),
        )
        async with aexec.Session(g.graph()) as session:
            assert await session.run("call:0") == 4

    async def test_calls_in_flight_keep_their_values_apart(self) -> None:
        """One node of a body, many values: one per call, however they overlap."""
        gate = gates.Gate()
        body = function(AddV2="TestGate", **{'input: "x" input: "x"': 'input: "x"', "sum:z:0": "sum:y:0"})
        body.node_def[0].attr["key"].i = gate.key
        body.signature.is_stateful = True
        g = calling(body)
        g.placeholder("x", dtypes.int32, [])
        g("call", "twice", "x")
        g.graph_def.node[-1].attr["T"].type = proto.DataType.DT_INT32
        async with aexec.Session(g.graph()) as session:
            runs = [asyncio.create_task(session.run("call:0", {"x:0": i})) for i in range(8)]
            while gate.count < 8:
                await asyncio.sleep(0)
            gate.open.set()
            assert await asyncio.gather(*runs) == list(range(8))

    async def test_call_waits_for_all_its_inputs(self) -> None:
        """A function that ignores an input still starts only when it has come."""
        gate = gates.Gate()
        second = 'input_arg { name: "unused" type: DT_INT32 }\n  output_arg'
        g = calling(function(output_arg=second))
        g.const("c", np.int32(2))
        g("late", "TestGate", "c", key=gate.key, T=dtypes.int32)
        g("call", "twice", "c", "late")
        g.graph_def.node[-1].attr["T"].type = proto.DataType.DT_INT32
        async with aexec.Session(g.graph()) as session:
            step = session.start("call:0")
            await gate.entered.wait()
            assert step.statistics().running == 1
            gate.open.set()
            assert await step == 4

    async def test_cancelling_the_step_cancels_its_calls(self) -> None:
        gate = gates.Gate()
        body = function(AddV2="TestGate", **{'input: "x" input: "x"': 'input: "x"', "sum:z:0": "sum:y:0"})
        body.node_def[0].attr["key"].i = gate.key
        g = calling(body)
        g.const("c", np.int32(2))
        g("call", "twice", "c")
        g.graph_def.node[-1].attr["T"].type = proto.DataType.DT_INT32
        async with aexec.Session(g.graph()) as session:
            step = session.start("call:0")
            await gate.entered.wait()
            step.cancel()
            with pytest.raises(errors.CancelledError):
                await step
            assert gate.cancelled == 1
