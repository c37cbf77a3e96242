"""The op registry: laziness, clashes, libraries, deprecation."""

from __future__ import annotations

import logging
import threading

import pytest

from aexec import hosting
from aexec.framework import errors
from aexec.framework.op_contract import op_registry
from aexec.framework.op_contract.op_def_builder import OpDefBuilder
from aexec.framework.op_contract.op_registry import OpRegistry, check_deprecation, register_op


@pytest.fixture
def registry() -> OpRegistry:
    return OpRegistry()


def test_register_and_lookup(registry):
    def shape_fn(c):
        return c

    register_op("Twice(x: T) -> y: T", "T: {float, int32}", shape_fn=shape_fn, registry=registry)
    assert registry.has("Twice")
    found = registry.lookup("Twice")
    assert found is registry.lookup("Twice") is registry.find("Twice")
    assert found.shape_fn is shape_fn
    assert str(found.op_def) == ("Op<name=Twice; signature=x:T -> y:T; attr=T:type,allowed=[DT_FLOAT, DT_INT32]>")


def test_definitions_are_made_ahead_where_processes_are_forked(monkeypatch):
    """Else each session host makes that of an op when its first session has it."""
    hosting.load_kernels()
    monkeypatch.setattr(op_registry, "parse_signature", lambda signature: pytest.fail(f"{signature} is made late"))
    for op in op_registry.global_registry.ops():
        op_registry.global_registry.lookup(op)


def test_flags(registry):
    register_op(
        "Every(x: float)", stateful=True, commutative=True, aggregate=True, allows_uninitialized_input=True,
        distributed_communication=True, deprecated=(3, "Use None"), control_outputs=("c",), doc="D.", registry=registry,
    )  # fmt: skip
    made = registry.lookup("Every").op_def
    assert made.is_stateful
    assert made.is_commutative
    assert made.is_aggregate
    assert made.allows_uninitialized_input
    assert made.is_distributed_communication
    assert made.deprecation.version == 3
    assert made.control_outputs == ("c",)
    assert made.summary == "D."


def test_definitions_are_checked_at_the_first_lookup(registry):
    register_op("Wrong(x: NoSuchType)", registry=registry)
    for _ in range(2):
        with pytest.raises(errors.InvalidArgumentError, match="Op Wrong: argument 'x': 'NoSuchType'"):
            registry.lookup("Wrong")


def test_unknown_op_names_what_is_near(registry):
    register_op("MatMul(a: float)", registry=registry)
    register_op("Placeholder()", registry=registry)
    with pytest.raises(errors.NotFoundError, match=r"^Op type not registered 'MatMull'.*Did you mean MatMul\?"):
        registry.lookup("MatMull")
    with pytest.raises(errors.NotFoundError, match=r"^Op type not registered 'Zzz'") as caught:
        registry.lookup("Zzz")
    assert "Did you mean" not in caught.value.message
    assert registry.find("Zzz") is None
    assert not registry.has("Zzz")


def test_duplicate(registry):
    register_op("A()", registry=registry)
    with pytest.raises(errors.AlreadyExistsError, match="A is registered already"):
        register_op("A()", registry=registry)
    registry.lookup("A")
    with pytest.raises(errors.AlreadyExistsError):
        register_op("A()", registry=registry)
    registry.unregister("A")
    register_op("A()", registry=registry)
    registry.unregister("NeverThere")


def test_list_and_message(registry):
    for name in ("B", "_Internal", "A"):
        register_op(f"{name}()", registry=registry)
    assert registry.ops() == ["A", "B", "_Internal"]
    assert [op.name for op in registry.to_proto().op] == ["A", "B", "_Internal"]
    assert [op.name for op in registry.to_proto(include_internal=False).op] == ["A", "B"]


def test_register_builder(registry):
    registry.register_builder(OpDefBuilder("Built").input("x: float").set_shape_fn(print))
    assert registry.lookup("Built").shape_fn is print
    assert registry.lookup("Built").op_def.inputs[0].name == "x"


def test_watch_tells_what_a_library_registers(registry):
    register_op("Before()", registry=registry)
    with registry.watch() as names:
        register_op("LibA()", registry=registry)
        register_op("LibB()", registry=registry)
    assert names == ["LibA", "LibB"]
    register_op("After()", registry=registry)
    assert names == ["LibA", "LibB"]


def test_watch_takes_back_what_a_failing_library_registered(registry):
    def fail_while_loading():
        with registry.watch():
            register_op("LibA()", registry=registry)
            raise RuntimeError

    def load_a_wrong_definition():
        with registry.watch():
            register_op("Good()", registry=registry)
            register_op("Bad(x: Nothing)", registry=registry)

    with pytest.raises(RuntimeError):
        fail_while_loading()
    assert registry.ops() == []
    with pytest.raises(errors.InvalidArgumentError, match="Nothing"):
        load_a_wrong_definition()
    assert registry.ops() == []


def test_library_may_repeat_another_librarys_op_but_no_built_in_one(registry):
    register_op("BuiltIn()", registry=registry)
    with registry.watch():
        register_op("Shared(x: float)", registry=registry)
    with registry.watch() as names:
        register_op("Shared(x: int32)", registry=registry)
    assert names == ["Shared"]
    assert str(registry.lookup("Shared").op_def.inputs[0].type) == "float"  # the first one stays
    with pytest.raises(errors.AlreadyExistsError), registry.watch():
        register_op("BuiltIn()", registry=registry)
    assert registry.ops() == ["BuiltIn", "Shared"]
    with pytest.raises(errors.AlreadyExistsError):
        register_op("Shared()", registry=registry)  # not while a library is loaded


def test_registration_filter(registry):
    with registry.registration_filter(lambda op: op.startswith("Keep")):
        register_op("KeepMe()", registry=registry)
        register_op("DropMe()", registry=registry)
        register_op("KeepMe2()", registry=registry)
    register_op("Free()", registry=registry)
    assert registry.ops() == ["Free", "KeepMe", "KeepMe2"]


def test_concurrent_first_lookups_agree(registry):
    for i in range(50):
        register_op(f"Op{i}(x: T) -> y: T", "T: numbertype", registry=registry)
    results: list[list[int]] = []

    def look() -> None:
        results.append([id(registry.lookup(f"Op{i}")) for i in range(50)])

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(r == results[0] for r in results)


def test_deprecation(registry, caplog, monkeypatch):
    monkeypatch.setattr(op_registry, "_warned", set())
    register_op("TopK()", deprecated=(7, "Use TopKV2 instead"), registry=registry)
    register_op("Fine()", registry=registry)
    top_k = registry.lookup("TopK").op_def
    with pytest.raises(errors.UnimplementedError) as caught:
        check_deprecation(top_k, 1395)
    assert caught.value.message == (
        "Op TopK is not available in GraphDef version 1395. It has been removed in version 7. Use TopKV2 instead."
    )
    with pytest.raises(errors.UnimplementedError):
        check_deprecation(top_k, 7)
    check_deprecation(registry.lookup("Fine").op_def, 10**6)
    with caplog.at_level(logging.WARNING, "aexec"):
        check_deprecation(top_k, 6)
        check_deprecation(top_k, 6)
    assert [r.getMessage() for r in caplog.records] == [
        "Op TopK is deprecated. It will cease to work in GraphDef version 7. Use TopKV2 instead."
    ]
