"""Variables in parts: TensorFlow's partitions, names, first values and training; checkpoints, sharing, and refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import layers, nn, ops, regularizers, training
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.io.tensor_bundle import BundleReader
from aexec.variables.save_slices import SaveSliceInfo

# Of TensorFlow 2.21, in graph mode.
RECORDED = json.loads((Path(__file__).parent / "data" / "partitioned.json").read_text())

IN_THREE = aexec.fixed_size_partitioner(3)

PARTITIONERS: dict[str, tuple[Any, list[tuple[list[int], str]]]] = {
    "fixed": (IN_THREE, [([7, 2], "float32"), ([2, 5], "float32"), ([9], "int64")]),
    "fixed along 1": (aexec.fixed_size_partitioner(2, axis=1), [([7, 3], "float32"), ([7, 1], "float32")]),
    "by bytes": (
        aexec.variable_axis_size_partitioner(64),
        [([7, 2], "float32"), ([100, 4], "float64"), ([3, 100], "float32"), ([9], "string")],
    ),
    "by bytes, at most": (
        aexec.variable_axis_size_partitioner(16, axis=1, max_shards=3),
        [([2, 20], "float32")],
    ),
    "min max": (
        aexec.min_max_variable_partitioner(4, min_slice_size=64),
        [([7, 2], "float32"), ([100, 4], "float64"), ([2, 100], "float32"), ([9], "string")],
    ),
}


@pytest.mark.parametrize("name", PARTITIONERS)
def test_partitioners(name: str) -> None:
    partitioner, cases = PARTITIONERS[name]
    assert [partitioner(shape, aexec.as_dtype(dtype)) for shape, dtype in cases] == RECORDED["partitions"][name]


def shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Of the tensors of a checkpoint."""
    with BundleReader(path) as reader:
        return {name: reader.dtype_and_shape(name)[1] for name in reader.keys()}  # noqa: SIM118  no mapping


def model(use_resource: bool = False, partitioner: Any = IN_THREE) -> tuple[list[Any], Any, Any]:
    """Variables, a loss, and a step of training."""
    with aexec.variable_scope("m", partitioner=partitioner, use_resource=use_resource):
        w: Any = aexec.get_variable("w", [7, 2], regularizer=nn.l2_loss)
        u: Any = aexec.get_variable("u", [4, 3], initializer=aexec.initializers.UniformUnitScaling())
        c: Any = aexec.get_variable("c", initializer=aexec.constant(np.arange(8, dtype=np.float32).reshape(4, 2)))
        s: Any = aexec.get_variable("s", [])
    x = aexec.constant(np.arange(14, dtype=np.float32).reshape(2, 7) / 10)
    rows = nn.embedding_lookup(c, [0, 3, 3], "div")
    costs = aexec.get_collection(GraphKeys.REGULARIZATION_LOSSES)
    parts = [ops.sum(ops.sin(x @ w * s), [0, 1]), ops.sum(ops.sin(rows), [0, 1]), ops.sum(u, [0, 1])]
    loss = ops.add_n([*parts, *costs])
    return [w, u, c, s], loss, training.AdamOptimizer(0.1).minimize(loss)


@pytest.mark.parametrize("form", ["reference", "resource"])
async def test_training_is_that_of_tensorflow(form: str) -> None:
    recorded = RECORDED[form]
    with aexec.Graph() as graph:
        aexec.set_random_seed(3)
        (w, u, c, s), loss, step = model(form == "resource")
        init = aexec.global_variables_initializer()
        variables = {variable.name: list(variable.shape) for variable in aexec.global_variables()}
    assert variables == recorded["variables"]
    async with aexec.Session(graph) as session:
        await session.run(init)
        first = await session.run([w, u, s])
        for _ in range(3):
            await session.run(step)
        after = await session.run([w, c, s, loss])
    for value, expected in zip(first, recorded["initial"], strict=True):
        np.testing.assert_allclose(np.ravel(value), expected, rtol=1e-6)
    for value, expected in zip(after, recorded["after"], strict=True):
        np.testing.assert_allclose(np.ravel(value), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "into",
    [None, IN_THREE, aexec.fixed_size_partitioner(2), aexec.fixed_size_partitioner(2, 1)],
    ids=["whole", "in three", "in two", "along the other axis"],
)
async def test_checkpoints_know_the_whole(into: Any, tmp_path: Path) -> None:
    """What was saved in three parts is restored in others, or in one: slots, too."""
    with aexec.Graph() as graph:
        aexec.set_random_seed(3)
        variables, _, step = model()
        saver = training.Saver()
        init = aexec.global_variables_initializer()
        slot = aexec.identity(graph.tensor("m/w/part_1/Adam/read:0"))
    async with aexec.Session(graph) as session:
        await session.run(init)
        await session.run(step)
        saved, of_part = await session.run([variables, slot])
        path = await saver.save(session, str(tmp_path / "model.ckpt"))
    assert (await asyncio.to_thread(shapes, path))["m/w/Adam"] == (7, 2)
    with aexec.Graph() as graph:
        again, _, _ = model(partitioner=into)
        other = training.Saver()
        kept = [v for v in aexec.global_variables() if v.name.startswith("m/w/") and v.name.endswith("/Adam:0")]
    async with aexec.Session(graph) as session:
        await other.restore(session, path)
        restored, slots = await session.run([again, kept])
    for value, expected in zip(restored, saved, strict=True):
        np.testing.assert_array_equal(value, expected)
    if into is not IN_THREE and into is not None and len(slots[0]) == 7:
        np.testing.assert_array_equal(np.concatenate(slots, 1)[3:5], of_part)
    else:
        np.testing.assert_array_equal(np.concatenate(slots)[3:5], of_part)


async def test_parts_are_saved_under_other_names(tmp_path: Path) -> None:
    with aexec.Graph() as graph:
        w = aexec.get_variable("w", [4], initializer=aexec.initializers.Ones(), partitioner=IN_THREE)
        first = next(iter(w))
        savers = [training.Saver([w]), training.Saver({"other": w}), training.Saver({"part": first})]
        average = training.ExponentialMovingAverage(0.5)
        move = average.apply([w])
        everything = training.Saver(average.variables_to_restore([w]))
        init = aexec.global_variables_initializer()
    names = []
    async with aexec.Session(graph) as session:
        await session.run(init)
        await session.run(move)
        for number, saver in enumerate([*savers, everything]):
            path = await saver.save(session, str(tmp_path / str(number)))
            names.append(await asyncio.to_thread(shapes, path))
    assert names == [{"w": (4,)}, {"other": (4,)}, {"part": (2,)}, {"w/ExponentialMovingAverage": (4,)}]


def test_meta_graphs_have_them(tmp_path: Path) -> None:
    with aexec.Graph():
        aexec.get_variable("w", [4], partitioner=IN_THREE)
        aexec.export_meta_graph(tmp_path / "graph.meta")
    with aexec.Graph():
        aexec.import_meta_graph(tmp_path / "graph.meta")
        parts = aexec.global_variables()
    assert [part.save_slice_info for part in parts] == [
        SaveSliceInfo("w", [4], [0], [2]),
        SaveSliceInfo("w", [4], [2], [1]),
        SaveSliceInfo("w", [4], [3], [1]),
    ]
    assert parts[1].save_slice_info is not None and parts[1].save_slice_info.spec == "4 2,1"


@pytest.mark.parametrize("use_resource", [False, True])
async def test_values_are_given_to_the_parts(use_resource: bool) -> None:
    with aexec.Graph() as graph, aexec.variable_scope("", use_resource=use_resource):
        w = aexec.get_variable("w", [2, 3], partitioner=aexec.fixed_size_partitioner(2, axis=1))
        one = aexec.get_variable("one", [2], partitioner=aexec.fixed_size_partitioner(1))
        value = np.arange(6, dtype=np.float32).reshape(2, 3)
        sets = [part.op for part in w.assign(value) + one.assign([1.0, 2.0])]
        with aexec.control_dependencies(sets):
            more = w.assign_add(value, read_value=False)
        with aexec.control_dependencies(more):
            less = one.assign_sub([1.0, 1.0])
        twice = 2.0 * one
    assert repr(w) == "<PartitionedVariable 'w' shape=[2,3] dtype=float in 2 parts along axis 1>"
    assert [part.name for part in w] == ["w/part_0:0", "w/part_1:0"] and len(one) == 1
    async with aexec.Session(graph) as session:
        await session.run([], targets=[part.op for part in less])
        found = await session.run([w, one, twice])
    np.testing.assert_array_equal(found[0], 2 * value)
    assert [found[1].tolist(), found[2].tolist()] == [[0, 1], [0, 2]]


async def test_layers_are_partitioned_by_their_scope() -> None:
    def network(x: Any) -> Any:
        return layers.batch_normalization(layers.dense(x, 4, name="d"), training=True, name="b")

    with aexec.Graph() as graph:
        x = aexec.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
        regularizer = regularizers.l2_regularizer(1.0)
        with aexec.variable_scope("m", partitioner=aexec.fixed_size_partitioner(2), regularizer=regularizer):
            made = network(x)
        with aexec.variable_scope("m", reuse=True):
            again = network(x)
        names = [variable.name for variable in aexec.global_variables()]
        assert len(aexec.get_collection(GraphKeys.REGULARIZATION_LOSSES)) == 10
        init = aexec.global_variables_initializer()
    parts = ["m/d/kernel", "m/d/bias", "m/b/gamma", "m/b/beta"]
    assert names[:8] == [f"{name}/part_{number}:0" for name in parts for number in (0, 1)]
    assert names[8:] == ["m/b/moving_mean:0", "m/b/moving_variance:0"]
    async with aexec.Session(graph) as session:
        await session.run(init)
        np.testing.assert_array_equal(*await session.run([made, again]))


def test_invalid_partitions_are_refused() -> None:
    def shared(reuse: Any, **options: Any) -> Any:
        with aexec.variable_scope("", reuse=reuse):
            return aexec.get_variable("w", **options)

    two = aexec.fixed_size_partitioner(2)
    refused: list[tuple[str, Callable[[], Any]]] = [
        (r"Partitioned variable with name w already exists\.", lambda: shared(None, shape=[4], partitioner=two)),
        ("a partitioned version of the variable was found: w/part_0", lambda: shared(None, shape=[4])),
        (r"specified shape \[5\] and found shape \[4\]", lambda: shared(True, shape=[5], partitioner=two)),
        ("specified dtype double and found dtype float", lambda: shared(True, dtype="float64", partitioner=two)),
        (r"partitions \[3\] and found partitions \[2\]", lambda: shared(True, shape=[4], partitioner=IN_THREE)),
        ("an unpartitioned version of the variable was found: v", lambda: aexec.get_variable("v", partitioner=two)),
        (
            "PartitionedVariable x does not exist",
            lambda: _in_scope(lambda: aexec.get_variable("x", [4], partitioner=two)),
        ),
        ("must be fully defined", lambda: aexec.get_variable("y", [None], partitioner=two)),
        (
            "Can only slice a variable along one dimension",
            lambda: aexec.get_variable("y", [4, 4], partitioner=lambda shape, dtype: [2, 2]),
        ),
        (
            "expected a positive number for each axis",
            lambda: aexec.get_variable("y", [4, 4], partitioner=lambda shape, dtype: [2]),
        ),
        ("do not specify a shape", lambda: aexec.get_variable("y", [2], initializer=[1.0, 2.0], partitioner=two)),
        (r"use `list\(variable\)`", lambda: aexec.gradients(aexec.constant(1.0), [shared(True)])),
        ("must be positive", lambda: aexec.min_max_variable_partitioner(0)),
        ("must be positive", lambda: aexec.variable_axis_size_partitioner(0)),
        ("max_shards must be positive", lambda: aexec.variable_axis_size_partitioner(1, max_shards=0)),
    ]

    def _in_scope(build: Callable[[], Any]) -> Any:
        with aexec.variable_scope("", reuse=True):
            return build()

    with aexec.Graph():
        aexec.get_variable("w", [4], partitioner=two)
        aexec.get_variable("v", [4])
        assert len(shared(True)) == len(shared(aexec.AUTO_REUSE, shape=[4], partitioner=two)) == 2
        for message, build in refused:
            with pytest.raises(errors.InvalidArgumentError, match=message):
                build()
