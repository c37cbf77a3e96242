"""The kernel registry: keys, constraints, labels, what an error lists, selective registration."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import KernelRegistration, KernelRegistry, kernel
from aexec.framework.kernel_contract.op_kernel import AsyncOpKernel, OpKernel, OpKernelConstruction, OpKernelContext
from aexec.framework.op_contract.op_def_builder import OpDefBuilder
from tests.support.stand_ins import contexts

FLOAT, INT = {"T": dtypes.float32}, {"T": dtypes.int32}


def registration(op: str = "Twice", device: str = "CPU", **more: Any) -> KernelRegistration:
    constraints = {k: frozenset(v) for k, v in more.pop("constraints", {}).items()}
    return KernelRegistration(op, device, lambda c: lambda x: x, constraints, **more)


@pytest.fixture
def registry() -> KernelRegistry:
    return KernelRegistry()


@pytest.fixture
def scratch() -> Iterator[list[KernelRegistration]]:
    """What is registered globally within a test is taken back."""
    with kernel_registry.global_registry.watch() as registered:
        yield registered
    for each in registered:
        kernel_registry.global_registry.unregister(each)


def construction(op: str = "Twice") -> OpKernelConstruction:
    op_def = OpDefBuilder(op).attr("T: type").input("x: T").output("y: T").finalize()
    return OpKernelConstruction(
        name="n", op_def=op_def, attrs=FLOAT, input_types=[dtypes.float32], output_types=[dtypes.float32]
    )


class TestKey:
    """Kernels are found by op, device type and label; several may share a key."""

    def test_one_interface_has_a_kernel_per_device_type(self, registry: KernelRegistry) -> None:
        cpu, gpu = registration(), registration(device="GPU")
        registry.register(cpu)
        registry.register(gpu)
        assert registry.lookup("Twice", "CPU", FLOAT, node="n") is cpu
        assert registry.lookup("Twice", "GPU", FLOAT, node="n") is gpu

    def test_device_type_that_nobody_knew_is_fine(self, registry: KernelRegistry) -> None:
        plugged_in = registration(device="ASIC")
        registry.register(plugged_in)
        assert registry.lookup("Twice", "ASIC", FLOAT, node="n") is plugged_in

    def test_constraints_tell_kernels_of_one_key_apart(self, registry: KernelRegistry) -> None:
        floats = registration(constraints={"T": [dtypes.float32, dtypes.float64]})
        ints = registration(constraints={"T": [dtypes.int32]})
        registry.register(floats)
        registry.register(ints)
        assert registry.lookup("Twice", "CPU", FLOAT, node="n") is floats
        assert registry.lookup("Twice", "CPU", INT, node="n") is ints

    def test_each_element_of_a_type_list_has_to_be_allowed(self) -> None:
        each = registration(constraints={"T": [dtypes.float32, dtypes.int32]})
        assert each.mismatch({"T": [dtypes.float32, dtypes.int32]}) is None
        assert each.mismatch({"T": [dtypes.float32, dtypes.string]}) == "T"

    def test_label_is_served_only_to_nodes_that_ask_for_it(self, registry: KernelRegistry) -> None:
        plain, labelled = registration(), registration(label="mine")
        registry.register(plain)
        registry.register(labelled)
        assert registry.lookup("Twice", "CPU", FLOAT, node="n") is plain
        assert registry.lookup("Twice", "CPU", {**FLOAT, "_kernel": b"mine"}, node="n") is labelled

    def test_default_serves_device_types_without_a_kernel_of_their_own(self, registry: KernelRegistry) -> None:
        default, cpu = registration(device="DEFAULT"), registration()
        registry.register(default)
        registry.register(cpu)
        assert registry.lookup("Twice", "CPU", FLOAT, node="n") is cpu
        assert registry.lookup("Twice", "GPU", FLOAT, node="n") is default

    def test_priority_counts_in_placement_not_in_lookup(self, registry: KernelRegistry) -> None:
        registry.register(registration(priority=1))
        registry.register(registration(device="GPU", priority=7))
        assert registry.device_types("Twice", FLOAT) == {"CPU": 1, "GPU": 7}
        registry.register(registration(priority=9))
        with pytest.raises(errors.InvalidArgumentError, match="Multiple OpKernel registrations match NodeDef 'n'"):
            registry.lookup("Twice", "CPU", FLOAT, node="n")


class TestNotFound:
    def test_error_lists_what_is_registered(self, registry: KernelRegistry) -> None:
        registry.register(registration(constraints={"T": [dtypes.float32]}, label="fast"))
        registry.register(registration(device="GPU"))
        with pytest.raises(errors.NotFoundError) as caught:
            registry.lookup("Twice", "CPU", INT, node="n")
        assert caught.value.message == (
            "No registered 'Twice' OpKernel for CPU devices compatible with node {{node n}}.  Registered:\n"
            "  device='CPU'; label='fast'; T in [DT_FLOAT]\n"
            "  device='GPU'\n"
        )

    def test_kernel_of_other_types_is_mentioned(self, registry: KernelRegistry) -> None:
        registry.register(registration(constraints={"T": [dtypes.float32]}))
        with pytest.raises(errors.NotFoundError, match=r"\(OpKernel was found, but attributes didn't match\)"):
            registry.lookup("Twice", "CPU", INT, node="n")

    def test_op_without_kernels(self, registry: KernelRegistry) -> None:
        with pytest.raises(errors.NotFoundError, match="<no registered kernels>"):
            registry.lookup("Twice", "CPU", FLOAT, node="n")

    @pytest.mark.parametrize("attrs", [{}, {"T": 3}])
    def test_constraint_on_what_is_no_type_attr(self, attrs: dict[str, Any]) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="has constraint on attr 'T'"):
            registration(constraints={"T": [dtypes.float32]}).mismatch(attrs)


class TestRegistering:
    """A function, a class, or any callable object can be a kernel's builder."""

    def test_function(self, scratch: list[KernelRegistration]) -> None:
        @kernel("RegistryTestOp", T=[dtypes.float32])
        def twice(c: OpKernelConstruction) -> Any:
            return lambda x: x + x

        (made,) = kernel_registry.global_registry.kernels_of("RegistryTestOp")
        assert scratch == [made]
        assert made.build(construction()).compute(np.float32(2)) == 4

    def test_class(self, scratch: list[KernelRegistration]) -> None:
        @kernel("RegistryTestOp")
        class Twice(OpKernel):
            def compute(self, context: OpKernelContext) -> None:
                context.set_output(0, context.input(0) * 2)

        built = scratch[0].build(construction())
        assert contexts.call(built, [np.float32(3)]) == (6,)
        assert not built.is_async

    def test_asynchronous_class(self, scratch: list[KernelRegistration]) -> None:
        @kernel("RegistryTestOp")
        class Twice(AsyncOpKernel):
            async def compute(self, context: OpKernelContext) -> None:
                context.set_output(0, context.input(0) * 2)

        assert scratch[0].build(construction()).is_async

    def test_factory_object(self, scratch: list[KernelRegistration]) -> None:
        def scaled(factor: int, c: OpKernelConstruction) -> Any:
            return lambda x: x * factor

        kernel("RegistryTestOp")(functools.partial(scaled, 5))
        assert scratch[0].build(construction()).compute(np.float32(2)) == 10

    def test_several_ops_and_devices_at_once(self, scratch: list[KernelRegistration]) -> None:
        kernel("RegistryTestA", "RegistryTestB", device=("CPU", "GPU"), host_memory=("x",))(lambda c: abs)
        assert [(k.op, k.device_type) for k in scratch] == [
            ("RegistryTestA", "CPU"),
            ("RegistryTestA", "GPU"),
            ("RegistryTestB", "CPU"),
            ("RegistryTestB", "GPU"),
        ]
        assert all(k.host_memory == ("x",) for k in scratch)

    def test_kernel_refused_by_a_filter_is_skipped(self, scratch: list[KernelRegistration]) -> None:
        with kernel_registry.registration_filter(lambda k: k.op != "RegistryTestA"):
            decorated = kernel("RegistryTestA", "RegistryTestB")(abs)
        assert decorated is abs
        assert [k.op for k in scratch] == ["RegistryTestB"]
        kernel("RegistryTestA")(abs)
        assert [k.op for k in scratch] == ["RegistryTestB", "RegistryTestA"]

    def test_library_that_fails_leaves_no_kernel(self, registry: KernelRegistry) -> None:
        def fail() -> None:
            with registry.watch():
                registry.register(registration())
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert registry.ops() == []

    def test_threads_register_and_look_up_at_once(self, registry: KernelRegistry) -> None:
        def work(number: int) -> None:
            for i in range(50):
                registry.register(registration(f"Op{number}_{i}"))
                registry.lookup(f"Op{number}_{i}", "CPU", FLOAT, node="n")

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(registry.ops()) == 200


def test_kernels_of_a_module_are_imported_when_one_of_its_ops_needs_them(tmp_path: Any, monkeypatch: Any) -> None:
    registry = KernelRegistry()
    monkeypatch.setattr(kernel_registry, "registry_of_this_test", registry, raising=False)
    (tmp_path / "late_kernels.py").write_text(
        "from aexec.framework.kernel_contract.kernel_registry import KernelRegistration, registry_of_this_test\n"
        "registry_of_this_test.register(KernelRegistration('Late', 'CPU', abs, {}))\n"
        "registry_of_this_test.kernels_of('Late')\n"  # asking while being imported must not go round in circles
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry.load_on_first_use("late_kernels", ["Late", "WithoutKernel"])
    assert registry.kernels_of("Other") == []
    assert not registry.is_loaded("Late")
    assert [k.op for k in registry.kernels_of("Late")] == ["Late"]
    assert registry.is_loaded("WithoutKernel")
    assert registry.ops() == ["Late"]


def test_kernel_is_described_as_tensorflow_does(registry: KernelRegistry) -> None:
    registry.register(
        registration(
            constraints={"T": [dtypes.int32, dtypes.float32]}, label="fast", priority=3, host_memory=("x", "y")
        )
    )
    (made,) = registry.to_proto().kernel
    assert made == proto.KernelDef(
        op="Twice",
        device_type="CPU",
        constraint=[
            proto.KernelDef.AttrConstraint(
                name="T",
                allowed_values=proto.AttrValue(
                    list=proto.AttrValue.ListValue(type=[proto.DataType.DT_FLOAT, proto.DataType.DT_INT32])
                ),
            )
        ],
        host_memory_arg=["x", "y"],
        label="fast",
        priority=3,
    )


def test_host_memory_of_an_argument_that_the_op_has_not() -> None:
    op_def = OpDefBuilder("Twice").input("x: float").output("y: float").finalize()
    construction = OpKernelConstruction(name="n", op_def=op_def, attrs={}, input_types=(), output_types=())
    registration(host_memory=("x", "y")).build(construction)
    with pytest.raises(
        errors.InvalidArgumentError, match="HostMemory args 'nothing', 'sizes' not found in OpDef: Twice"
    ):
        registration(host_memory=("x", "sizes", "nothing")).build(construction)


class TestDerivedKernels:
    """Kernels of a device type that are made of others', where it has none."""

    def registry(self) -> tuple[KernelRegistry, list[KernelRegistration]]:
        registry, asked = KernelRegistry(), []

        def derivation(of: KernelRegistration) -> Iterator[KernelRegistration]:
            asked.append(of)
            if of.device_type == "CPU":
                yield replace(of, device_type="TestDerived", host_memory=("x",))

        registry.derive("TestDerived", derivation)
        for op, device_type in (("A", "CPU"), ("B", "CPU"), ("B", "TestDerived"), ("C", "CPU"), ("C", "DEFAULT")):
            registry.register(KernelRegistration(op, device_type, lambda c: lambda: None, {}))
        return registry, asked

    def test_registered_kernel_precedes_a_derived_one(self) -> None:
        registry, _ = self.registry()
        assert registry.lookup("A", "TestDerived", {}, node="n").host_memory == ("x",)
        assert registry.lookup("B", "TestDerived", {}, node="n").host_memory == ()
        assert registry.lookup("C", "TestDerived", {}, node="n").device_type == "DEFAULT"
        assert registry.lookup("A", "CPU", {}, node="n").device_type == "CPU"
        with pytest.raises(errors.NotFoundError, match="No registered 'A' OpKernel for TestOther devices"):
            registry.lookup("A", "TestOther", {}, node="n")

    def test_placement_knows_of_them(self) -> None:
        registry, _ = self.registry()
        assert registry.device_types("A", {}) == {"CPU": 0, "TestDerived": 0}
        assert [k.device_type for k in registry.kernels_of("A")] == ["CPU"], "they are not registered"

    def test_derived_kernels_are_made_once(self) -> None:
        registry, asked = self.registry()
        first = registry.lookup("A", "TestDerived", {}, node="n")
        assert registry.lookup("A", "TestDerived", {}, node="n") is first
        assert len(asked) == 1
