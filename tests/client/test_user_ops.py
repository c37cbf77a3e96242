"""Ops of one's own: what their functions may do with their inputs, what they may return, and being defined again."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.op_contract import op_registry


@aexec.op("UserOpsTestScribble(x: T, y: T) -> z: T", "T: type")
def scribble(x: Any, y: Any) -> Any:
    x += 1
    return x + y


@aexec.op("UserOpsTestScribbleLater(x: T) -> z: T", "T: type")
async def scribble_later(x: Any) -> Any:
    x[0] = 1
    return x


@aexec.op("UserOpsTestSame(x: T) -> z: T", "T: type")
def same(x: Any) -> Any:
    return x


class TestInputs:
    """They belong to others: the caller, a constant, another node."""

    async def test_inputs_cannot_be_written_to(self) -> None:
        fed = np.zeros(3, np.float32)
        words = fed.astype(object)
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", name="x")
            s = aexec.placeholder("string", name="s")
            shared = aexec.ops.square(x)
            nodes = [
                scribble(x, x, name="of_feed"),
                scribble(shared, x, name="of_node"),
                scribble(aexec.constant([1.0, 2.0, 3.0]), x, name="of_constant"),
                scribble_later(x, name="later"),
                scribble_later(s, name="of_strings"),
            ]
        words = np.array([b"a", b"b"], object)
        async with aexec.Session(graph) as session:
            for node in nodes:
                with pytest.raises(errors.UnknownError, match="read-only"):
                    await session.run(node, {x: fed, s: words})
            assert (await session.run(shared, {x: fed})).tolist() == [0, 0, 0]
        assert fed.tolist() == [0, 0, 0] and fed.flags.writeable
        assert words.tolist() == [b"a", b"b"]

    async def test_inputs_can_be_returned(self) -> None:
        with aexec.Graph() as graph:
            x = aexec.placeholder("float32", name="x")
            y = same(x)
            z = aexec.ops.add_v2(same(y), x)
        async with aexec.Session(graph) as session:
            assert (await session.run([y, z], {x: [1.0, 2.0]}))[1].tolist() == [2, 4]
            assert await session.run(z, {x: 3.0}) == 6


async def outputs_of(signature: str, *inputs: Any, function: Callable[..., Any], attrs: Sequence[str] = ()) -> Any:
    """What a step gives for an op with this signature (without its name) and function."""
    name = "UserOpsTestOutputs"
    try:
        with aexec.Graph() as graph:
            made = aexec.op(name + signature, *attrs)(function)(*inputs, name="n")
        async with aexec.Session(graph) as session:
            return await session.run(made)
    finally:
        op_registry.global_registry.unregister(name)
        for kernel in kernel_registry.global_registry.kernels_of(name):
            kernel_registry.global_registry.unregister(kernel)


class TestOutputs:
    """What a function returns is what its signature says, or the step fails."""

    @pytest.mark.parametrize(
        ("signature", "result", "expected"),
        [
            ("() -> y: float", 1.5, np.float32(1.5)),
            ("() -> y: float", 3, np.float32(3)),
            ("() -> y: float", [1, 2.5], np.array([1, 2.5], np.float32)),
            ("() -> y: float", [], np.array([], np.float32)),
            ("() -> y: float", [np.float32(1), 2.5], np.array([1, 2.5], np.float32)),
            ("() -> y: float", (np.float32(2),), np.float32(2)),
            ("() -> y: int64", range(3), np.arange(3)),
            ("() -> y: uint8", 255, np.uint8(255)),
            ("() -> y: bool", [True, False], np.array([True, False])),
            ("() -> y: complex64", 1, np.complex64(1)),
            ("() -> y: bfloat16", [1.5], np.array([1.5], aexec.bfloat16.np)),
        ],
    )
    async def test_numbers_of_python_take_the_declared_type(self, signature: str, result: Any, expected: Any) -> None:
        got = await outputs_of(signature, function=lambda: result)
        assert got.dtype == expected.dtype and got.shape == expected.shape and np.all(got == expected)

    @pytest.mark.parametrize(
        ("result", "expected"),
        [("é", "é".encode()), (b"x", b"x"), (bytearray(b"x"), b"x"), (["a", b"b"], [b"a", b"b"])],
    )
    async def test_text_is_encoded(self, result: Any, expected: Any) -> None:
        got = await outputs_of("() -> y: string", function=lambda: result)
        assert (got.tolist() if isinstance(got, np.ndarray) else got) == expected

    async def test_several_come_as_a_tuple_or_a_list(self) -> None:
        for several in ((1.5, [2]), [1.5, [2]]):
            a, b = await outputs_of("() -> (a: float, b: int32)", function=lambda: several)  # noqa: B023
            assert a == 1.5 and b.tolist() == [2] and b.dtype == np.int32

    @pytest.mark.parametrize(
        ("signature", "result", "message"),
        [
            ("() -> y: float", None, r"y: float, and returned None; is a `return` missing\?$"),
            ("() -> (a: float, b: int32)", None, r"a: float, b: int32, and returned None; is a `return` missing\?$"),
            ("() -> (a: float, b: int32)", (1.0,), r"a: float, b: int32, and returned \(1.0,\) .*; 1 values, not 2$"),
            ("() -> (a: float, b: int32)", np.ones(2), r"b: int32, and returned an array of float64 of shape \[2\]$"),
            ("() -> (a: float, b: int32)", (1.0, None), "return b: int32, and returned None$"),
            ("() -> (a: float, b: int32)", (1.0, 2.5), "return b: int32, and returned 2.5 of type float$"),
            ("() -> y: float", (1.0, 2.0), r"y: float, and returned \(1.0, 2.0\) of type tuple; 2 values, not 1$"),
            ("() -> y: float", np.ones(3), r"y: float, and returned an array of float64 of shape \[3\]; use `.astype"),
            ("() -> y: float", np.float64(1), "y: float, and returned a value of float64; use `.astype"),
            ("() -> y: float", [np.float64(1)], "y: float, and .*list; there is a value of float64 in it$"),
            ("() -> y: float", [[1.0], [2.0, 3.0]], "y: float, and .*list; setting an array element with a sequence"),
            ("() -> y: float", "1.0", "y: float, and returned '1.0' of type str$"),
            ("() -> y: float", {"a": 1}, "y: float, and returned {'a': 1} of type dict$"),
            ("() -> y: float", object(), "y: float, and returned .*object"),
            ("() -> y: int32", 2**40, "y: int32, and returned 1099511627776 of type int; a value does not fit"),
            ("() -> y: int32", 1.5, "y: int32, and returned 1.5 of type float$"),
            ("() -> y: string", 1, "y: string, and returned 1 of type int$"),
            ("() -> y: string", ["a", 1], "y: string, and .*list; there is 1 of type int in it$"),
            ("() -> y: variant", None, "y: variant, and returned None"),
            ("()", 1, "return nothing, and returned 1 of type int$"),
        ],
    )
    async def test_anything_else_is_an_error_of_the_op(self, signature: str, result: Any, message: str) -> None:
        with pytest.raises(errors.InternalError) as caught:
            await outputs_of(signature, function=lambda: result)
        first, *_ = str(caught.value).splitlines()
        assert first.startswith("op 'UserOpsTestOutputs': its function has to return ")
        assert re.search(message, first), first
        assert (caught.value.node, caught.value.op) == ("n", "UserOpsTestOutputs")

    async def test_coroutine_of_a_plain_function_is_named(self) -> None:
        async def later() -> float:
            return 1.0

        with pytest.raises(errors.InternalError, match="a function that awaits is an `async def`"):
            await outputs_of("() -> y: float", function=lambda: later())

    async def test_coroutine_function_that_forgets_to_return(self) -> None:
        async def forgets() -> None:
            pass

        with pytest.raises(errors.InternalError, match="is a `return` missing"):
            await outputs_of("() -> y: float", function=forgets)

    async def test_lists_of_outputs_name_their_elements(self) -> None:
        signature = "(x: N * float) -> y: N * float"
        with pytest.raises(errors.InternalError, match=r"return y\[1\]: float, and returned None"):
            await outputs_of(signature, [1.0, 2.0], function=lambda a, b: (a, None), attrs=["N: int"])


def in_module(name: str, code: str) -> types.ModuleType:
    """Run code as if it were a module's, or a cell of a notebook."""
    module = types.ModuleType(name)
    module.aexec = aexec  # type: ignore[attr-defined]
    exec(code, vars(module))
    return module


CELL = """
@aexec.op("UserOpsTestCell(x: float) -> y: float")
def cell(x):
    return x + 1
"""


class TestDefiningAgain:
    @pytest.fixture(autouse=True)
    def forgotten(self) -> Any:
        yield
        op_registry.global_registry.unregister("UserOpsTestCell")
        for kernel in kernel_registry.global_registry.kernels_of("UserOpsTestCell"):
            kernel_registry.global_registry.unregister(kernel)

    async def test_cell_can_run_again(self) -> None:
        first = in_module("__main__", CELL).cell
        with aexec.Graph() as graph:
            before = first(1.0)
            aexec.ops.user_ops_test_cell(1.0)
        async with aexec.Session(graph) as session:
            assert await session.run(before) == 2
            second = in_module("__main__", CELL.replace("x: float", "x: float, z: float").replace("x)", "x, z)"))
            with aexec.Graph() as again:
                after = second.cell(1.0, 5.0)
                by_name = aexec.ops.user_ops_test_cell(1.0, 5.0)
            async with aexec.Session(again) as other:
                assert await other.run([after, by_name]) == [2, 2]
            assert await session.run(before) == 2  # its kernel was built before

    def test_another_function_for_the_same_op_name_is_refused(self) -> None:
        in_module("__main__", CELL)
        for module, code in (("elsewhere", CELL), ("__main__", CELL.replace("def cell", "def other"))):
            with pytest.raises(errors.AlreadyExistsError, match="Op with name UserOpsTestCell is registered already"):
                in_module(module, code)
        in_module("__main__", CELL)

    def test_functions_made_by_others_are_not_the_same(self) -> None:
        """Each call makes a function of its own, which only looks the same."""
        code = f"def make():\n{CELL.replace(chr(10), chr(10) + '    ')}\nmake()\n"
        module = in_module("__main__", code)
        with pytest.raises(errors.AlreadyExistsError):
            module.make()

    async def test_definition_that_fails_leaves_the_earlier_one(self) -> None:
        cell = in_module("__main__", CELL).cell
        with pytest.raises(errors.InvalidArgumentError):
            in_module("__main__", CELL.replace("y: float", "y: flot"))
        with pytest.raises(errors.InvalidArgumentError, match="has the inputs x, which its function cell"):
            in_module("__main__", CELL.replace("cell(x)", "cell(x, y)"))
        with aexec.Graph() as graph:
            y = cell(1.0)
        async with aexec.Session(graph) as session:
            assert await session.run(y) == 2

    def test_wrong_definition_can_be_corrected(self) -> None:
        with pytest.raises(errors.InvalidArgumentError):
            in_module("__main__", CELL.replace("y: float", "y: flot"))
        in_module("__main__", CELL)

    def test_ops_of_the_package_are_not_replaced(self) -> None:
        with pytest.raises(errors.AlreadyExistsError):
            in_module("__main__", CELL.replace("UserOpsTestCell", "Relu"))
        assert op_registry.global_registry.lookup("Relu").op_def.inputs[0].name == "features"


class TestUserOp:
    def test_user_op_keeps_its_function_and_shows_its_signature(self) -> None:
        assert scribble.compute(np.float32(1), 2) == 4
        assert scribble.__name__ == "scribble" and scribble.__module__ == __name__
        assert list(inspect.signature(scribble).parameters) == ["x", "y", "name"]
        assert not inspect.iscoroutinefunction(scribble_later)
        assert repr(same).startswith("<aexec.op UserOpsTestSame (x")

    def test_wrong_arguments_are_named(self) -> None:
        with aexec.Graph(), pytest.raises(TypeError, match="missing a required argument: 'y'"):
            scribble(1.0)
