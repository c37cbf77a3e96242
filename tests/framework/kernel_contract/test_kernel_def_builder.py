"""Describing a kernel part by part: what comes out, how it is registered, errors reported together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.kernel_contract.kernel_def_builder import KernelDefBuilder
from aexec.framework.kernel_contract.kernel_registry import KernelRegistry
from aexec.framework.op_contract.op_registry import register_op

register_op("TestKernelDef(a: T, n: int32) -> b: T", "T: {float, half}", "k: int = 0")


def builder() -> KernelDefBuilder:
    return KernelDefBuilder("TestKernelDef").device("ASIC")


def test_builder_sets_all_parts() -> None:
    built = (
        builder()
        .type_constraint("T", dtypes.float32, "half")
        .host_memory("n")
        .host_memory("b", "n")
        .label("fast")
        .priority(3)
        .build()
    )
    wanted = proto.KernelDef(
        op="TestKernelDef", device_type="ASIC", label="fast", priority=3, host_memory_arg=["n", "b"]
    )
    allowed = wanted.constraint.add(name="T").allowed_values.list.type
    allowed.extend([proto.DataType.DT_FLOAT, proto.DataType.DT_HALF])
    assert built == wanted


def test_unset_parts_are_empty() -> None:
    assert builder().build() == proto.KernelDef(op="TestKernelDef", device_type="ASIC")


def test_op_that_nobody_defined_yet() -> None:
    built = KernelDefBuilder("TestNotDefined").device("CPU").type_constraint("Any", "int32").host_memory("x").build()
    assert built.constraint[0].name == "Any"


def test_registering() -> None:
    registry = KernelRegistry()
    made = builder().type_constraint("T", "float").label("l").register(lambda c: abs, cost=0, registry=registry)
    attrs = {"T": dtypes.float32, "_kernel": b"l"}
    assert registry.lookup("TestKernelDef", "ASIC", attrs, node="n") is made
    assert made.cost == 0
    assert registry.to_proto().kernel[0] == builder().type_constraint("T", "float").label("l").build()
    registry.unregister(made)
    assert registry.kernels_of("TestKernelDef") == []


def test_one_builder_may_register_several_kernels() -> None:
    registry = KernelRegistry()
    shared = builder()
    first = shared.register(lambda c: abs, registry=registry)
    second = shared.type_constraint("T", "half").register(lambda c: abs, registry=registry)
    assert not first.constraints
    assert set(second.constraints) == {"T"}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: KernelDefBuilder("").device("CPU"), "the op is not named"),
        (lambda: KernelDefBuilder("TestKernelDef"), "no device type is given"),
        (lambda: builder().device("CPU"), "device type given twice: 'ASIC' and 'CPU'"),
        (lambda: builder().label("a").label("b"), "label given twice: 'a' and 'b'"),
        (lambda: builder().priority(1).priority(2), "priority given twice: 1 and 2"),
        (lambda: builder().priority(2**31), "priority must fit 32 bits"),
        (lambda: builder().type_constraint("T", "float").type_constraint("T", "half"), "'T' has a constraint already"),
        (lambda: builder().type_constraint("T"), "allows no type"),
        (lambda: builder().type_constraint("T", "real"), "'T': 'real' is not a data type"),
        (lambda: builder().type_constraint("k", "float"), "'k', which is no attr of kind type"),
        (lambda: builder().type_constraint("U", "float"), "'U', which is no attr of kind type"),
        (lambda: builder().host_memory("c"), "'c', which is no input or output"),
    ],
)
def test_errors(build: Callable[[], KernelDefBuilder], message: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        build().build()


def test_errors_are_reported_together_and_nothing_is_registered() -> None:
    registry = KernelRegistry()
    wrong: Any = KernelDefBuilder("TestKernelDef").label("a").label("b").type_constraint("U", "float")
    with pytest.raises(errors.InvalidArgumentError) as caught:
        wrong.register(lambda c: abs, registry=registry)
    assert caught.value.message.startswith("3 error(s) while building KernelDef of 'TestKernelDef':\n")
    assert len(caught.value.message.splitlines()) == 4
    assert registry.kernels_of("TestKernelDef") == []
