"""What TensorFlow answers to small graphs, recorded: values with their types, or the class and words of an error.

    CASES = {"a list's length": lambda k: k.ops.TensorListLength(input_handle=k.reserve([2], 3))}
    test_answers = recorded_answers("list", CASES)

A case is built twice, with the values of its inputs known while the graph is made and not known.  In an environment
with TensorFlow 2.21, from the root of the repository, `python -m tests.kernels.recorded_answers list` writes the
answers to the cases of `list_cases.py` into `data/list_answers.json`.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["UNKNOWN", "Case", "Kit", "recorded_answers"]

DATA = Path(__file__).parent / "data"
UNKNOWN = -1  # an element shape of which not even the rank is known
MODULES = {
    "list": "tests.kernels.list.list_cases",
    "optional": "tests.kernels.control_flow.optional_cases",
    "tensor_array": "tests.kernels.data_flow.tensor_array_cases",
}


class Kit:
    """What cases are built with: `ops` are the raw ops, and values become tensors by `tensor`.

    Args:
        tf: TensorFlow's module, or `aexec.compat.v1`.
        known: whether the values of inputs are known while the graph is made.
    """

    def __init__(self, tf: Any, known: bool) -> None:
        self.tf, self.ops, self.known = tf, tf.raw_ops, known

    def tensor(self, value: Any, dtype: str = "float32") -> Any:
        """A tensor of this value, whose shape is known only if its value is."""
        constant = self.tf.constant(value, self.tf.as_dtype(dtype))
        return constant if self.known else self.tf.placeholder_with_default(constant, self.tf.TensorShape(None))

    def whole(self, value: Any) -> Any:
        """A tensor of int32."""
        return self.tensor(value, "int32")

    def reserve(self, shape: Any, size: int, dtype: str = "float32") -> Any:
        """A list of elements that are not set."""
        return self.ops.TensorListReserve(
            element_shape=self.whole(shape), num_elements=self.whole(size), element_dtype=self.tf.as_dtype(dtype)
        )

    def empty(self, shape: Any, most: int = -1, dtype: str = "float32") -> Any:
        """An empty list."""
        return self.ops.EmptyTensorList(
            element_shape=self.whole(shape), max_num_elements=self.whole(most), element_dtype=self.tf.as_dtype(dtype)
        )

    def set(self, values: Any, index: Any, value: Any, dtype: str = "float32", **options: Any) -> Any:
        """A list with an element set."""
        item = value if hasattr(value, "graph") else self.tensor(value, dtype)
        return self.ops.TensorListSetItem(input_handle=values, index=self.whole(index), item=item, **options)

    def push(self, values: Any, value: Any, dtype: str = "float32") -> Any:
        """A list with an element more."""
        item = value if hasattr(value, "graph") else self.tensor(value, dtype)
        return self.ops.TensorListPushBack(input_handle=values, tensor=item)

    def stack(self, values: Any, shape: Any = UNKNOWN, dtype: str = "float32", count: int = -1) -> Any:
        """The elements of a list as rows."""
        return self.ops.TensorListStack(
            input_handle=values,
            element_shape=self.whole(shape),
            element_dtype=self.tf.as_dtype(dtype),
            num_elements=count,
        )


Case = Callable[[Kit], Any]


def answer(tf: Any, case: Case, known: bool, config: Any = None) -> dict[str, Any]:
    """What a case gives: its tensors as data with their types, or the error's class and words."""
    try:
        with tf.Graph().as_default(), tf.Session(config=config) as session:
            found = case(Kit(tf, known))
            fetches = list(found) if isinstance(found, list | tuple) else [found]
            return {"values": [_as_data(array) for array in session.run(fetches)]}
    except Exception as error:
        return {"error": _class_of(tf, error), "words": _words(str(error))}


def _class_of(tf: Any, error: Exception) -> str:
    """Errors of building are ValueErrors, where a step's are of a status."""
    of_status = isinstance(error, tf.errors.OpError) and not isinstance(error, tf.errors.InvalidArgumentError)
    return type(error).__name__ if of_status else "InvalidArgumentError"


def _words(message: str) -> str:
    """The message itself, without the nodes that it came by, numbers of arrays, and what a variant has in it."""
    of_node = re.search(r"\nNode: '.*'\n(.*)", message)
    text = of_node[1] if of_node else message.splitlines()[0]
    text = re.sub(r"\b(TensorArrayV3)_\d+", r"\1_n", text)
    text = re.sub(r"^(\{\{node .*?\}\} ?)+|^.*?\(op: [^)]*\): ", "", text)
    return re.sub(r"\s*\[\[?\{\{.*$|\s* for '.*$|\s*with input shapes:.*$|(?<=Variant<).*$", "", text).strip()


def _as_data(array: Any) -> list[Any]:
    """Its type, its shape and its elements."""
    array = np.asarray(array)
    if array.dtype.kind in "OSU":
        flat = [item.decode("latin-1") if isinstance(item, bytes) else repr(item) for item in array.ravel()]
        return ["string", list(array.shape), flat]
    return [array.dtype.name, list(array.shape), array.ravel().tolist()]


def recorded_answers(name: str, cases: Mapping[str, Case], ours: Mapping[str, str]) -> Callable[..., None]:
    """A test that the answers to the cases are TensorFlow's: an error's words contain the words of TensorFlow's.

    Args:
        ours: cases that are answered differently, each with what the answer's text contains.
    """
    import pytest

    recorded: dict[str, list[Any]] = json.loads((DATA / f"{name}_answers.json").read_text(encoding="utf-8"))
    assert list(recorded) == list(cases), f"record the answers: python -m tests.kernels.recorded_answers {name}"
    assert set(ours) <= set(cases)

    @pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
    @pytest.mark.parametrize("case", cases)
    def test_answers(case: str, known: bool) -> None:
        import aexec.compat.v1 as tf
        from aexec.graph.graph import set_default_graph

        set_default_graph(None)  # Importing the package has made one.
        found, theirs = answer(tf, cases[case], known), recorded[case][not known]
        if case in ours:
            assert ours[case] in str(found)
            assert found != theirs, "TensorFlow's answer: take it off the list"
        elif "values" in theirs:
            assert found == theirs
        else:
            assert found.get("error") == theirs["error"], (found, theirs)
            assert theirs["words"] in found["words"]

    return test_answers


def main(name: str) -> None:
    """Write TensorFlow's answers to the cases of a module."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    # The kernels are asked, not what rewrites graphs.
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    cases: Mapping[str, Case] = importlib.import_module(MODULES[name]).CASES
    lines = [
        f"{json.dumps(case)}: {json.dumps([answer(tf, build, known, config) for known in (True, False)])}"
        for case, build in cases.items()
    ]
    (DATA / f"{name}_answers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
