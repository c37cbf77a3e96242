"""Initializers: TensorFlow's numbers for the same seeds, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aexec
from aexec import initializers
from aexec.framework import errors

# Of TensorFlow 2.21 with the graph's seed 7, in the order in which they are made; two without a recorded value.
RECORDED = {
    "ru": [
        1.7686424,
        -1.610312,
        0.2940457,
        2.2841349,
        -0.18136513,
        -1.0728647,
    ],
    "rn": [
        -0.0816108,
        3.244066,
        3.348348,
        -0.7280263,
        3.026366,
        3.2299433,
    ],
    "tn": [
        0.4723519,
        -0.48339534,
        0.40258583,
        0.651658,
        -0.109390184,
        -0.40244976,
    ],
    "uu": [
        -0.65997183,
        0.5606022,
        0.4578159,
        1.3028831,
        -1.1952606,
        1.0910745,
    ],
    "gu": [
        -0.21670562,
        -0.26983243,
        -0.41781855,
        -0.9024811,
        0.53908443,
        -0.09923166,
    ],
    "hn": [
        0.08996689,
        -0.70503086,
        -0.9076542,
        1.2214749,
        -0.48964822,
        -1.583708,
    ],
    "lu": [
        -0.4276085,
        0.08446455,
        0.007755995,
        -0.7869396,
        0.78725886,
        0.29274583,
    ],
    "ln": [
        0.0047770115,
        0.3507308,
        0.120463766,
        -0.24050926,
        -0.23024549,
        0.011834397,
    ],
    "un": [
        -1.4218376,
        -0.7892279,
        0.7690075,
        -1.3323994,
        0.8665976,
        -0.16573197,
    ],
    "orth": [
        0.4303193,
        -1.346619,
        -0.31182042,
        -1.4774379,
        -1.9281062,
        -0.061604857,
    ],
    "ow": [
        0.4886843,
        -0.8723306,
        -0.015065803,
        0.76914024,
        0.42259672,
        0.47941142,
    ],
    "i": [53, 54, 27],
    "g": [0.023904761, 0.5539206, 0.6634539, 0.26498228],
}

MADE = {
    "ru": initializers.RandomUniform(-2.0, 3.0),
    "rn": initializers.RandomNormal(1.0, 2.0),
    "tn": initializers.TruncatedNormal(0.0, 0.5, seed=3),
    "uu": initializers.UniformUnitScaling(1.5),
    "gu": initializers.glorot_uniform(),
    "gn": initializers.glorot_normal(),
    "hu": initializers.he_uniform(),
    "hn": initializers.he_normal(),
    "lu": initializers.lecun_uniform(),
    "ln": initializers.lecun_normal(seed=5),
    "un": initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal"),
    "orth": initializers.Orthogonal(2.0),
}


async def test_numbers_are_those_of_tensorflow() -> None:
    with aexec.Graph() as graph:
        aexec.set_random_seed(7)
        values: dict[str, Any] = {
            name: aexec.get_variable(name, [3, 2], initializer=made) for name, made in MADE.items()
        }
        values["ow"] = aexec.get_variable("ow", [2, 3], initializer=initializers.Orthogonal())
        values["i"] = aexec.random_uniform([3], 0, 100, "int32")
        values["g"] = aexec.random_gamma([2], [1.0, 2.0], 3.0)
        init = aexec.global_variables_initializer()
    async with aexec.Session(graph) as session:
        await session.run(init)
        found = await session.run(values)
    for name, recorded in RECORDED.items():
        value = np.asarray(found[name]).ravel()
        if name in ("orth", "ow"):  # the factorisation is another library's
            np.testing.assert_allclose(value, recorded, atol=1e-6)
        else:
            assert value.tolist() == np.asarray(recorded, value.dtype).tolist(), name


async def test_values_that_are_not_random() -> None:
    with aexec.Graph() as graph:
        f32 = aexec.float32
        values = [
            initializers.Zeros()([2], f32),
            initializers.Ones()([2], f32),
            initializers.Constant([1, 2])([2], f32),
            initializers.Identity(3.0)([2, 2], f32),
            initializers.Zeros()([1001], aexec.int32),
            initializers.Zeros()([1], aexec.string),
        ]
    assert values[4].op.op == "Fill"
    async with aexec.Session(graph) as session:
        *small, large, text = await session.run(values)
    assert [value.tolist() for value in small] == [[0, 0], [1, 1], [1, 2], [[3, 0], [0, 3]]]
    assert large.shape == (1001,) and not large.any()
    assert text.tolist() == [b""]


def test_invalid_arguments_are_refused() -> None:
    with aexec.Graph():
        with pytest.raises(errors.InvalidArgumentError, match="scale must be positive"):
            initializers.VarianceScaling(0.0)
        with pytest.raises(errors.InvalidArgumentError, match="mode must be"):
            initializers.VarianceScaling(1.0, "fan")  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgumentError, match="distribution must be"):
            initializers.VarianceScaling(1.0, "fan_in", "flat")  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgumentError, match="at least two dimensions"):
            initializers.Orthogonal()([3], aexec.float32)
        with pytest.raises(errors.InvalidArgumentError, match="two dimensions"):
            initializers.Identity()([3], aexec.float32)
        with pytest.raises(errors.InvalidArgumentError, match="maxval for integer"):
            aexec.random_uniform([3], dtype="int32")


async def test_seeds_of_the_graph_and_of_ops() -> None:
    def numbers() -> list[Any]:
        return [aexec.random_normal([2]), aexec.random_normal([2], seed=4), aexec.random_shuffle([1, 2, 3, 4])]

    async def drawn(seed: int | None) -> list[list[float]]:
        with aexec.Graph() as graph:
            aexec.set_random_seed(seed)
            values = numbers()
        async with aexec.Session(graph) as session:
            return [value.tolist() for value in await session.run(values)]

    first, again, other, none, unseeded = [await drawn(seed) for seed in (1, 1, 2, None, None)]
    assert first == again
    assert first[0] != other[0] and first[1] != other[1]
    assert none[1] == unseeded[1] and none[0] != unseeded[0]
    with aexec.Graph() as graph:
        aexec.set_random_seed(0)
        assert aexec.random_normal([1], seed=0).node.graph is graph
    node = graph.node("random_normal/RandomStandardNormal")
    assert (node.attrs["seed"], node.attrs["seed2"]) == (0, 2**31 - 1)


def test_floats_where_no_type_is_asked_for() -> None:
    with aexec.Graph():
        assert initializers.glorot_uniform(1)([2, 3]).dtype is aexec.float32
        assert initializers.Zeros()([2]).dtype is aexec.float32
