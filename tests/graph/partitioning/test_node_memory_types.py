"""Memory types of placed nodes: by kernel, by data type where there is no kernel, and by the node's own attrs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aexec import errors
from aexec.framework import dtypes
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.types import MemoryType
from aexec.framework.wire.attr_value import NameAttrList
from aexec.graph.partitioning.node_memory_types import memory_types_for_node
from tests.support.programs.graphs import GraphBuilder

register_op("TestMemory(a: N * T, b: int32, handle: resource) -> c: T, d: int32, text: string", "T: type", "N: int")


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    """One op with a kernel per device type, whose arguments are in different memory."""

    def builder(c: Any) -> Any:
        raise AssertionError("memory types are known without building a kernel")

    with kernel_registry.global_registry.watch() as registered:
        kernel("TestMemory", device="ASIC")(builder)
        kernel("TestMemory", device="SHAPES", host_memory=("a", "d"))(builder)
        kernel("TestMemory", device="FLOATS", T=[dtypes.float32])(builder)
        kernel("TestMemory", device="WRONG", host_memory=("a", "e"))(builder)
        kernel("TestMemory", device="DEFAULT", host_memory=("b",))(builder)
        kernel("PartitionedCall", device="SHAPES")(builder)
    yield
    for each in registered:
        kernel_registry.global_registry.unregister(each)


def letters(op: str, device_type: str, *inputs: dtypes.DType, **attrs: Any) -> str:
    """`HD->D`: host or device for each input, and for each output."""
    g = GraphBuilder()
    g.graph_def.library.function.add().signature.name = "Function"
    names = [g.placeholder(f"x{i}", dtype) for i, dtype in enumerate(inputs)]
    g("node", op, *names, **attrs)
    types = memory_types_for_node(g.graph().find("node"), device_type)
    return "->".join("".join("H" if m is MemoryType.HOST_MEMORY else "D" for m in side) for side in types)


INPUTS = (dtypes.float32, dtypes.float32, dtypes.int32, dtypes.resource)
TWO = {"T": dtypes.float32, "N": 2}


@pytest.mark.parametrize(
    ("device_type", "expected"),
    [
        ("ASIC", "DDDH->DDH"),  # what a kernel does not name is on its device, int32 too, but handles and strings
        ("SHAPES", "HHDH->DHH"),
        ("FLOATS", "DDDH->DDH"),
        ("TestOther", "DDHH->DDH"),  # the DEFAULT kernel
    ],
)
def test_kernel_decides(device_type: str, expected: str) -> None:
    assert letters("TestMemory", device_type, *INPUTS, **TWO) == expected


def test_types_decide_where_no_kernel_matches() -> None:
    assert letters("Unstage", "TestOther", dtypes=[dtypes.float32, dtypes.int32, dtypes.string]) == "->DHH"
    assert letters("AddV2", "TestOther", dtypes.int32, dtypes.int32, T=dtypes.int32) == "HH->H"
    assert letters("AddV2", "TestOther", dtypes.int64, dtypes.int64, T=dtypes.int64) == "DD->D"


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "expected"),
    [
        ("Switch", (dtypes.float32, dtypes.bool_), {"T": dtypes.float32}, "DH->DD"),
        ("Switch", (dtypes.int32, dtypes.bool_), {"T": dtypes.int32}, "HH->HH"),
        ("Merge", (dtypes.float32,) * 3, {"T": dtypes.float32, "N": 3}, "DDD->DH"),
        ("Merge", (dtypes.string,) * 2, {"T": dtypes.string, "N": 2}, "HH->HH"),
        ("Enter", (dtypes.bool_,), {"T": dtypes.bool_, "frame_name": b"f"}, "D->D"),
        ("Exit", (dtypes.resource,), {"T": dtypes.resource}, "H->H"),
        ("NextIteration", (dtypes.int32,), {"T": dtypes.int32}, "H->H"),
    ],
)
def test_control_flow_is_decided_on_the_host(
    op: str, inputs: tuple[dtypes.DType, ...], attrs: dict[str, Any], expected: str
) -> None:
    """As TensorFlow registers them for GPU."""
    assert letters(op, "TestOther", *inputs, **attrs) == expected


def test_references_are_where_their_values_are() -> None:
    g = GraphBuilder()
    g("v", "VariableV2", dtype=dtypes.int32, shape=[])
    g("enter", "RefEnter", "v", T=dtypes.int32, frame_name=b"f")
    assert memory_types_for_node(g.graph().find("enter"), "TestOther") == ((MemoryType.HOST_MEMORY,),) * 2


def test_calls_of_functions_are_decided_by_type_even_where_they_have_a_kernel() -> None:
    types = [dtypes.float32, dtypes.int32]
    attrs = {"Tin": types, "Tout": types[::-1], "f": NameAttrList("Function")}
    assert letters("PartitionedCall", "SHAPES", *types, **attrs) == "DH->HD"


def test_node_may_ask_for_host_memory_itself() -> None:
    asked = {"_input_hostmem": [0, 2], "_output_hostmem": [1]}
    assert letters("TestMemory", "ASIC", *INPUTS, **TWO, **asked) == "HDHH->DHH"
    with pytest.raises(errors.InvalidArgumentError, match=r"_output_hostmem names 3, not in \[0, 3\)"):
        letters("TestMemory", "ASIC", *INPUTS, **TWO, _output_hostmem=[3])


def test_kernel_that_names_what_its_op_does_not_have() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="HostMemory args 'e' not found in OpDef: TestMemory"):
        letters("TestMemory", "WRONG", *INPUTS, **TWO)


def test_two_kernels_for_one_node_are_refused() -> None:
    kernel("TestMemory", device="ASIC")(lambda c: lambda *x: x)
    last = kernel_registry.global_registry.kernels_of("TestMemory")[-1]
    try:
        with pytest.raises(errors.InvalidArgumentError, match="Multiple OpKernel registrations match NodeDef 'node'"):
            letters("TestMemory", "ASIC", *INPUTS, **TWO)
    finally:
        kernel_registry.global_registry.unregister(last)
