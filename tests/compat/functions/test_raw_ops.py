"""`tf.raw_ops`: TensorFlow's names of arguments and of results."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec.compat.v1 as tf
from aexec.framework.op_contract import op_registry

# Of TensorFlow 2.21: of each op the names of its arguments, and those of its results; `record.py` wrote them.
RECORDED: dict[str, list[Any]] = json.loads((Path(__file__).parents[1] / "data" / "raw_ops.json").read_text())
BOTH = sorted(set(RECORDED) & set(dir(tf.raw_ops)))


def test_arguments_have_tensorflows_names() -> None:
    assert len(BOTH) > 1000
    ours = {name: list(inspect.signature(getattr(tf.raw_ops, name)).parameters) for name in BOTH}
    assert not {name: (ours[name], RECORDED[name][0]) for name in BOTH if ours[name] != RECORDED[name][0]}


def test_results_have_tensorflows_names() -> None:
    """Results are named after the op's outputs, as those of functions are."""
    lookup = op_registry.global_registry.lookup
    outputs = {name: [arg.name for arg in lookup(name).op_def.outputs] for name in BOTH}
    several = {name: names for name, names in outputs.items() if len(names) > 1}
    assert len(several) > 100 and several == {name: RECORDED[name][1] for name in several}


def test_results_are_named() -> None:
    found = tf.unique([3, 3, 5])
    parts = tf.raw_ops.Split(axis=0, value=np.float32([1, 2]), num_split=2)
    words = tf.raw_ops.StringSplitV2(input=["a b"], sep=" ")
    with tf.Session() as sess:
        y, idx = sess.run(found)
        assert y.tolist() == [3, 5] and idx.tolist() == [0, 0, 1] == sess.run(found.idx).tolist()
        assert sess.run(words).values.tolist() == [b"a", b"b"] and len(sess.run(parts)) == 2
    assert isinstance(found, tuple) and type(found) is type(tf.unique([1])) and type(found).__name__ == "Unique"


def test_arguments_are_named() -> None:
    with pytest.raises(TypeError):
        tf.raw_ops.MatMul([[1.0]], [[2.0]])
    with pytest.raises(TypeError, match="reduction_indices is called axis"):
        tf.raw_ops.Sum(input=[1.0], reduction_indices=0)
    with pytest.raises(TypeError, match="missing a required argument"):
        tf.raw_ops.MatMul(a=[[1.0]])
