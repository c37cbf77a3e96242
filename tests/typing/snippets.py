"""What type checkers say of programs that use aexec: read by `test_types.py`, never run.

Lines marked `# wrong` must be errors, to mypy and to pyright; all others must be none.
"""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

import aexec
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernel, OpKernelConstruction, OpKernelContext
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as shapes
from aexec.framework.shape_functions.shape_inference import InferenceContext
from aexec.graph.signature import TensorInfo

Array = np.ndarray[Any, np.dtype[Any]]


@aexec.op("TypesTestDouble(x: float) -> y: float")
def double(x: Array) -> Array:
    return x * 2


@aexec.op("TypesTestSplit(x: float) -> (a: float, b: int32)")
async def split(x: Array, scale: int) -> tuple[Array, int]:
    return x * scale, 1


@aexec.op("TypesTestNote(x: float)", stateful=True)
def note(x: Array) -> None:
    print(x)


def building() -> None:
    with aexec.Graph() as graph:
        assert_type(graph, aexec.Graph)
        x = aexec.placeholder(np.float32, [None], name="x")
        assert_type(x, aexec.Tensor)
        assert_type(double(x, name="d"), aexec.Tensor)
        assert_type(split(x, scale=2), tuple[aexec.Tensor, aexec.Tensor])
        assert_type(note(x), aexec.Node)
        assert_type(double.compute(np.ones(3)), Array)
        double.compute("three")  # wrong
        split.compute(np.ones(3))  # wrong
        assert_type(aexec.float32, aexec.DType)
        aexec.flaot32  # wrong
        x.dtpye  # wrong


async def running(x: aexec.Tensor, train: aexec.Node, fetches: dict[str, aexec.Tensor]) -> None:
    async with aexec.Session("model.pb", config=aexec.SessionConfig(operation_timeout=1)) as session:
        assert_type(session, aexec.Session)
        assert_type(await session.run("y:0", {"x:0": 1.0}), Array)
        assert_type(await session.run(x, options=aexec.RunOptions(timeout=1.0)), Array)
        assert_type(await session.run(train), None)
        assert_type(await session.run(["y:0", "z:0"]), list[Array])
        assert_type(await session.run([x, x]), list[Array])
        assert_type(await session.run(fetches), dict[str, Array])
        assert_type(await session.run({"a": "y:0"}), dict[str, Array])
        assert_type(await session.run((x, "y:0")), tuple[Array, Array])
        assert_type(await session.call("serving_default", x=1.0), dict[str, Array])
        assert_type(session.inputs["x"], TensorInfo)
        (await session.run("y:0")).shpae  # wrong
        await session.run("y:0", timeout=1.0)  # wrong
        await session.rnu("y:0")  # wrong
    assert_type(await aexec.Session(b""), aexec.Session)
    aexec.Session(3)  # wrong
    aexec.Sesion("model.pb")  # wrong
    aexec.load_grpah("model.pb")  # wrong
    with aexec.Session("model.pb"):  # wrong
        pass


def registering(construction: OpKernelConstruction) -> None:
    @kernel("TypesTestScale", T=[aexec.float32], cost=0)
    def scale(c: OpKernelConstruction) -> Compute:
        factor = c.attr("factor")
        return lambda x: x * factor

    @kernel("TypesTestRows", host_memory=("shape",))
    class Rows(OpKernel):
        def compute(self, context: OpKernelContext) -> None:
            context.set_output(0, len(context.input("x")))

        rows = 3

    assert_type(Rows.rows, int)
    assert_type(scale(construction), Compute)
    kernel("TypesTestScale", T=[np.float32])  # wrong
    kernel("TypesTestScale", priority="high")  # wrong
    kernel("TypesTestScale")(vector_of_rows)  # wrong
    kernel("TypesTestScale")(number_of_rows)  # wrong

    register_op("TypesTestScale(x: T) -> y: T", "T: type", shape_fn=shapes.unchanged_shape)
    register_op("TypesTestRows(x: float) -> rows: int32", shape_fn=vector_of_rows)
    register_op("TypesTestRows(x: float) -> rows: int32", shape_fn=scale)  # wrong


def vector_of_rows(c: InferenceContext) -> None:
    c.set_output(0, c.scalar())


def number_of_rows(c: OpKernelConstruction) -> int:
    return len(c.input_types)
