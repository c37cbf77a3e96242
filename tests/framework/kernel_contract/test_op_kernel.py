"""What a kernel may ask while it is built and while it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract.op_kernel import (
    AsyncOpKernel,
    BuiltKernel,
    OpKernel,
    OpKernelConstruction,
    OpKernelContext,
    PaddedCost,
)
from aexec.framework.op_contract.op_def_builder import OpDefBuilder
from aexec.framework.state.resource_manager import ResourceManager
from aexec.framework.waiting.cancellation import CancellationManager
from aexec.framework.wire.attr_value import TensorAttr
from tests.kernels.harness import build
from tests.support.stand_ins import contexts

OP_DEF = (
    OpDefBuilder("Join")
    .attr("N: int >= 1")
    .attr("T: type")
    .attr("label: string = 'none'")
    .attr("limit: int = 3")
    .input("first: T")
    .input("rest: N * float")
    .output("joined: T")
    .finalize()
)


def construction(**more: Any) -> OpKernelConstruction:
    attrs = {"N": 2, "T": dtypes.int32, "label": b"lbl", "limit": 3, **more.pop("attrs", {})}
    return OpKernelConstruction(
        name="n",
        op_def=OP_DEF,
        attrs=attrs,
        input_types=OP_DEF.input_types(attrs),
        output_types=OP_DEF.output_types(attrs),
        **more,
    )


class TestConstruction:
    def test_construction_has_node_op_types_device_and_array_module(self) -> None:
        c = construction(graph_version=21)
        assert (c.name, c.op, c.op_def) == ("n", "Join", OP_DEF)
        assert c.input_types == (dtypes.int32, dtypes.float32, dtypes.float32)
        assert c.output_types == (dtypes.int32,)
        assert c.device == "/job:localhost/replica:0/task:0/device:CPU:0"
        assert c.xp is np
        assert c.graph_version == 21

    def test_attrs_are_python_values(self) -> None:
        c = construction()
        assert (c.attr("N"), c.attr("T"), c.attr("label"), c.text("label")) == (2, dtypes.int32, b"lbl", "lbl")
        with pytest.raises(errors.InvalidArgumentError, match="No attr named 'missing' in NodeDef"):
            c.attr("missing")
        with pytest.raises(errors.InvalidArgumentError, match="is not UTF-8"):
            construction(attrs={"label": b"\xff"}).text("label")

    def test_tensor_attr_is_an_array(self) -> None:
        g = aexec.Graph()
        with g:
            node = aexec.constant([1, 2], name="c").op
        assert isinstance(node.attrs["value"], TensorAttr)
        c = OpKernelConstruction(
            name="c", op_def=node.op_def, attrs=node.attrs, input_types=(), output_types=node.output_types
        )
        np.testing.assert_array_equal(c.attr("value"), [1, 2])

    def test_arguments_have_a_range_in_the_flat_list(self) -> None:
        c = construction()
        assert c.input_range("first") == (0, 1)
        assert c.input_range("rest") == (1, 3)
        assert c.output_range("joined") == (0, 1)

    def test_match_signature(self) -> None:
        c = construction()
        c.match_signature([dtypes.int32, dtypes.float32, dtypes.float32], [dtypes.int32])
        with pytest.raises(errors.InvalidArgumentError) as caught:
            c.match_signature([dtypes.int32, dtypes.float32], [dtypes.float32])
        assert caught.value.message == (
            "Signature mismatch, have: int32, float, float->int32 expected: int32, float->float"
        )

    def test_kernel_gets_the_context_only_if_it_asks(self) -> None:
        c = construction()
        assert not c.wants_context
        c.need_context()
        assert c.wants_context


class TestContext:
    def test_context_has_step_frame_resources_and_cancellation(self) -> None:
        manager, resources = CancellationManager(), ResourceManager()
        context = contexts.context(resources, manager, step_id=7)
        assert (context.step_id, context.frame_iter, context.is_input_dead) == (7, (0, 0), False)
        assert context.step_container == "__per_step_7"
        child = CancellationManager(manager)
        inner = OpKernelContext(context.params, child, (5, 2))
        assert inner.frame_iter == (5, 2)
        assert (context.cancellation, inner.cancellation) == (manager, child)
        assert inner.resources is resources
        assert inner.rendezvous is context.rendezvous
        assert inner.tensor_store is context.tensor_store

    def test_context_of_a_function_has_no_inputs_and_outputs(self) -> None:
        """They are its arguments, and what it returns."""
        context = contexts.context()
        for ask in (
            lambda: context.input(0),
            lambda: context.input_list("x"),
            lambda: context.set_output(0, 1),
            lambda: context.allocate_output("y", []),
        ):
            with pytest.raises(errors.FailedPreconditionError, match="the context of a kernel that is a function"):
                ask()

    async def test_kernel_sees_the_frame_and_iteration_it_runs_in(self) -> None:
        from aexec.framework.kernel_contract.kernel_registry import kernel
        from aexec.framework.op_contract.op_registry import register_op
        from tests.support.programs.graphs import counting_loop

        seen: list[tuple[int, int]] = []
        register_op("TestWhere(x: int32) -> y: int32")

        @kernel("TestWhere", cost=0)
        def where(c: OpKernelConstruction) -> Any:
            c.need_context()

            def compute(context: OpKernelContext, x: Any) -> Any:
                seen.append(context.frame_iter)
                return x

            return compute

        g = counting_loop()
        g.graph_def.node.remove(next(n for n in g.graph_def.node if n.name == "body"))
        g("body", "TestWhere", "switch:1")
        async with aexec.Session(g.graph()) as session:
            assert await session.run("result:0", {"n:0": 3}) == 3
        assert [iteration for _, iteration in seen] == [0, 1, 2]
        (frame,) = {frame for frame, _ in seen}
        assert frame != 0


class TestKernelClasses:
    def test_compute_has_to_be_defined(self) -> None:
        with pytest.raises(errors.UnimplementedError, match="OpKernel does not define compute"):
            OpKernel(construction()).compute(contexts.context())

    async def test_asynchronous_class_must_define_compute(self) -> None:
        with pytest.raises(errors.UnimplementedError, match="AsyncOpKernel does not define compute"):
            await AsyncOpKernel(construction()).compute(contexts.context())

    def test_coroutine_function_makes_an_asynchronous_kernel(self) -> None:
        async def compute() -> None:
            """Nothing."""

        assert BuiltKernel(compute, False).is_async
        assert not BuiltKernel(abs, False).is_async


def test_padded_input_costs_what_it_is_with_its_padding() -> None:
    cost = PaddedCost(lambda x, *_: float(x.size), [0, 0, 20_000, 20_000, 1, 1, 0, 0])
    assert cost(np.ones((1, 1, 1, 3)), np.ones((1, 1, 3, 4))) == 3 * 40_001 * 3
    assert PaddedCost(lambda x: 7.0, [1, 1])(np.ones((2, 2))) == 7.0


@pytest.mark.parametrize("op", ["Conv2D", "DepthwiseConv2dNative"])
def test_kernel_with_explicit_paddings_counts_them(op: str) -> None:
    paddings = [0, 0, 9, 9, 9, 9, 0, 0]
    inputs = np.ones((1, 1, 1, 3), np.float32), np.ones((1, 1, 3, 4), np.float32)
    kernel, _, _ = build(op, inputs, strides=[1, 1, 1, 1], padding=b"EXPLICIT", explicit_paddings=paddings)
    assert isinstance(kernel.cost, PaddedCost)
