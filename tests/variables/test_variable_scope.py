"""Variable scopes: names, sharing, and what is said for all variables inside; as TensorFlow has it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import initializers, regularizers
from aexec.framework import errors
from aexec.graph.collections import GraphKeys


@pytest.fixture(autouse=True)
def graph() -> Iterator[aexec.Graph]:
    with aexec.Graph() as made:
        yield made


def test_names_follow_variable_scopes_and_other_nodes_follow_name_scopes() -> None:
    with aexec.variable_scope("foo") as scope:
        with aexec.name_scope("inner"):
            v = aexec.get_variable("v", [1])
        assert (scope.name, scope.original_name_scope) == ("foo", "foo/")
        assert aexec.constant(1, name="c").name == "foo/c:0"
        with aexec.variable_scope("bar"):
            assert aexec.get_variable("w", [1]).name == "foo/bar/w:0"
    assert v.name == "foo/v:0"
    with aexec.variable_scope("foo", reuse=True) as again:
        assert aexec.get_variable("v", [1]) is v
        assert aexec.constant(1, name="c").name == "foo_1/c:0"
        assert again.original_name_scope == "foo_1/"
    with aexec.variable_scope("foo", auxiliary_name_scope=False):
        assert aexec.constant(1, name="c").name == "c:0"
    assert aexec.get_variable_scope().name == ""


def test_scope_can_be_gone_back_to() -> None:
    with aexec.variable_scope("a"), aexec.variable_scope("b") as inner:
        v = aexec.get_variable("v", [1])
    with aexec.variable_scope("c"), aexec.variable_scope(inner, reuse=True) as back:
        assert aexec.get_variable("v", [1]) is v
        assert aexec.constant(1, name="c").name == "c/b/c:0"
        assert (back.name, back.original_name_scope) == ("a/b", "a/b/")


def test_default_names_are_made_unique_among_variable_scopes() -> None:
    names = []
    for _ in range(2):
        with aexec.variable_scope(None, "foo"):
            names.append(aexec.get_variable("v", [1]).name)
    with aexec.variable_scope("outer"):
        for _ in range(2):
            with aexec.variable_scope(None, default_name="foo") as scope:
                names.append(scope.name)
    with aexec.variable_scope("outer", reuse=True), aexec.variable_scope(None, "foo") as scope:
        names.append(scope.name)
    assert names == ["foo/v:0", "foo_1/v:0", "outer/foo", "outer/foo_1", "outer/foo"]


def test_variables_are_made_or_reused() -> None:
    with aexec.variable_scope("foo"):
        v = aexec.get_variable("v", [1])
        with pytest.raises(errors.InvalidArgumentError, match=r"Variable foo/v already exists, disallowed.*reuse=True"):
            aexec.get_variable("v", [1])
    with aexec.variable_scope("foo", reuse=True):
        with pytest.raises(errors.InvalidArgumentError, match="foo/w does not exist, or was not created with"):
            aexec.get_variable("w", [1])
        with pytest.raises(errors.InvalidArgumentError, match=r"specified shape \[2\] and found shape \[1\]"):
            aexec.get_variable("v", [2])
        with pytest.raises(errors.InvalidArgumentError, match="specified dtype double and found dtype float"):
            aexec.get_variable("v", [1], "float64")
        with aexec.variable_scope("inner", reuse=False) as inner:
            assert inner.reuse is True
    with aexec.variable_scope("foo", reuse=aexec.AUTO_REUSE):
        assert aexec.get_variable("v", [1]) is v
        w = aexec.get_variable("w", [1])
        assert aexec.get_variable("w") is w
        assert aexec.Variable(1.0, name="v").name == "foo_2/v:0"
    assert repr(aexec.AUTO_REUSE) == "AUTO_REUSE"


def test_invalid_scopes_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="needs name_or_scope or default_name"):
        aexec.variable_scope().__enter__()
    with pytest.raises(errors.InvalidArgumentError, match="without a name_or_scope"):
        aexec.variable_scope(None, "x", reuse=True).__enter__()
    with pytest.raises(errors.InvalidArgumentError, match=r"Shape of a new variable \(v\) must be fully defined"):
        aexec.get_variable("v", [None, 2])
    with pytest.raises(errors.InvalidArgumentError, match="do not specify a shape"):
        aexec.get_variable("v", [2], initializer=[1.0, 2.0])
    with pytest.raises(errors.InvalidArgumentError, match="An initializer for variable v of complex64 is required"):
        aexec.get_variable("v", [2], "complex64")
    outer, inner = aexec.variable_scope("a"), aexec.variable_scope("b")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(errors.FailedPreconditionError, match="Improper nesting"):
        outer.__exit__(None, None, None)
    inner.__exit__(None, None, None)
    assert aexec.get_variable_scope().name == "a"


async def test_settings_of_a_scope_hold_inside(graph: aexec.Graph) -> None:
    with aexec.variable_scope(
        "foo",
        initializer=initializers.Constant(2.0),
        regularizer=regularizers.l2_regularizer(0.5),
        dtype="float64",
        use_resource=True,
        constraint=aexec.ops.abs,
    ):
        v = aexec.get_variable("v", [2])
        w = aexec.get_variable("w", initializer=np.float32(3.0), use_resource=False, trainable=False)
    integer = aexec.get_variable("i", [1], "int32")
    losses = aexec.get_collection(GraphKeys.REGULARIZATION_LOSSES)
    more = [
        regularizers.l1_regularizer(2.0)(w),
        regularizers.l1_l2_regularizer(1.0, 1.0)(v),
        regularizers.l1_l2_regularizer(0.0, 0.0)(v),
    ]
    init = aexec.global_variables_initializer()
    assert (v.dtype, v.is_resource, v.constraint) == (aexec.float64, True, aexec.ops.abs)
    assert (w.dtype, w.is_resource, w.trainable) == (aexec.float32, False, False)
    assert aexec.get_variable_scope().trainable_variables() == [v, integer]
    with aexec.variable_scope("foo") as scope:
        assert scope.global_variables() == [v, w] and scope.trainable_variables() == [v]
    assert losses[0].name == "foo/v/Regularizer/l2_regularizer/Mul:0"
    assert more[2] is None
    with pytest.raises(errors.InvalidArgumentError, match="negative"):
        regularizers.l1_regularizer(-1.0)
    async with aexec.Session(graph) as session:
        await session.run(init)
        assert (await session.run(v)).tolist() == [2.0, 2.0]
        assert [float(loss) for loss in await session.run(losses + more[:2])] == [2.0, 2.25, 6.0, 8.0]


def test_custom_getters_nest() -> None:
    calls = []

    def named(name: str) -> Callable[..., Any]:
        def getter(get: Callable[..., Any], full: str, **arguments: Any) -> Any:
            calls.append((name, full))
            return get(f"{full}_{name}", **{**arguments, "trainable": False})

        return getter

    outer = aexec.variable_scope("a", custom_getter=named("outer"))
    with outer, aexec.variable_scope("b", custom_getter=named("inner")):
        v = aexec.get_variable("v", [1])
    assert calls == [("inner", "a/b/v"), ("outer", "a/b/v_inner")]
    assert (v.name, v.trainable) == ("a/b/v_inner_outer:0", False)


def test_scope_begins_to_share() -> None:
    with aexec.variable_scope("a") as scope:
        v = aexec.get_variable("v", [1])
        scope.reuse_variables()
        assert aexec.get_variable("v", [1]) is v
        with aexec.variable_scope("b"), pytest.raises(errors.InvalidArgumentError, match="a/b/u does not exist"):
            aexec.get_variable("u", [1])
    aexec.get_variable("u", [1])  # the outer scope does not
    aexec.get_variable_scope().reuse_variables()
    with pytest.raises(errors.InvalidArgumentError, match="w does not exist"):
        aexec.get_variable("w", [1])
    with aexec.Graph():
        aexec.get_variable("w", [1])  # each graph has a root of its own


async def test_tasks_and_threads_are_each_in_their_own_scope(graph: aexec.Graph) -> None:
    names: list[str] = []
    entered, looked = asyncio.Event(), asyncio.Event()

    async def one() -> None:
        with aexec.variable_scope("one"):
            entered.set()
            await looked.wait()
            names.append(aexec.get_variable_scope().name)

    async def two() -> None:
        await entered.wait()
        names.append(aexec.get_variable_scope().name)
        looked.set()

    with aexec.variable_scope("outer"):
        await asyncio.gather(one(), two())

        def elsewhere() -> None:
            with graph:
                names.append(aexec.get_variable_scope().name)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert names == ["outer", "outer/one", ""]
