"""The tables of names: all that they name is there, takes TensorFlow's arguments, and what is not there says so."""

from __future__ import annotations

import importlib
import inspect
import json

import pytest
from google.protobuf.message import Message

import aexec
import aexec.compat.v1 as tf
from aexec import errors
from aexec.compat.v1.namespace import renamed
from tests.compat.recorded.names import FILE, callables, resolve

# Of TensorFlow 2.21: names of arguments; `record.py` wrote them.
SIGNATURES: dict[str, list[str]] = json.loads((FILE.parent / "signatures.json").read_text())

# What has other arguments: classes of ours that programs name and do not make, and what a base class does not say.
OTHERWISE = {
    "DType",
    "RaggedTensor",
    "VariableScope",
    "data.Dataset",
    "data.Iterator",
    "distributions.Distribution",
    "dtypes.DType",
    "train.SessionRunContext",
}


def test_all_names_lead_somewhere() -> None:
    """And none that was there is gone; new ones may wait until TensorFlow is asked again."""
    assert set(FILE.read_text().split()) <= set(callables())


def arguments(name: str) -> list[str]:
    parameters = inspect.signature(resolve(name)).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]


def test_arguments() -> None:
    """TensorFlow's, in their order; ours may have more at the end."""
    functions = {name: theirs for name, theirs in SIGNATURES.items() if name not in OTHERWISE and not is_message(name)}
    assert len(functions) > 700
    other = {name: (arguments(name), theirs) for name, theirs in functions.items()}
    assert not {name: both for name, both in other.items() if both[0][: len(both[1])] != both[1]}


def test_arguments_that_may_be_left_out() -> None:
    """Those that TensorFlow has a default for."""
    recorded: dict[str, int] = json.loads((FILE.parent / "required.json").read_text())
    functions = [name for name in recorded if name not in OTHERWISE and not is_message(name)]
    needed = {name: required(name) for name in functions}
    assert not {name: (needed[name], recorded[name]) for name in functions if needed[name] > recorded[name]}


def required(name: str) -> int:
    parameters = inspect.signature(resolve(name)).parameters.values()
    return sum(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def is_message(name: str) -> bool:
    found = resolve(name)
    return isinstance(found, type) and issubclass(found, Message | Exception | int)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("contrib.lite", "graphs as they are"),
        ("data.experimental.SqlDataset", "from_generator"),
        ("GradientTape", "no eager execution"),
        ("train.SessionManager", "MonitoredTrainingSession"),
        ("estimator", "MonitoredTrainingSession"),
        ("string_lower", "the op of that name is aexec.ops.string_lower"),
        ("placholder", "did you mean placeholder"),
        ("raw_ops.MatMull", "aexec has no op 'MatMull'"),
    ],
)
def test_missing_names_say_so(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        resolve(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("contrib.tpu", "has no module 'tpu': there are no TPUs"),
        ("python.framework", "take the public name"),
        ("keras.layers", "layers are functions here"),
        ("lossess", "did you mean losses"),
    ],
)
def test_module_that_is_not_there_says_why_when_it_is_imported(name: str, words: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=words):
        importlib.import_module(f"aexec.compat.v1.{name}")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'aexec\.nothing'$"):
        importlib.import_module("aexec.nothing")


@pytest.mark.parametrize("name", ["gfile", "flags", "nn", "array_ops"])
def test_module_of_a_room_is_imported_without_the_name_of_the_room(name: str) -> None:
    package = importlib.import_module("aexec.compat.v1")
    module = importlib.import_module(f"aexec.compat.v1.{name}")
    assert getattr(package, name) is module is importlib.import_module(module.__name__)
    assert module.__spec__ is not None and module.__spec__.name == module.__name__ != f"aexec.compat.v1.{name}"


def test_ops_by_their_names() -> None:
    product = tf.raw_ops.MatMul(a=[[1.0]], b=[[2.0]], transpose_b=True)
    assert product.op.type == "MatMul" and "Conv2D" in dir(tf.raw_ops)


def test_renamed() -> None:
    def ours(x: int, width: int = 1, *, depth: int = 2) -> tuple[int, int, int]:
        return x, width, depth

    theirs = renamed(ours, "input=x depth size=width hint= odd! layout!NHWC", "theirs")
    assert list(inspect.signature(theirs).parameters) == ["input", "depth", "size", "hint", "odd", "layout"]
    assert theirs(1) == (1, 1, 2)
    assert theirs(1, 3, 4, "ignored", False, "NHWC") == (1, 4, 3)
    assert theirs(input=1, size=None) == (1, 1, 2)
    with pytest.raises(errors.UnimplementedError, match="theirs: odd=7 is not supported"):
        theirs(1, odd=7)
    with pytest.raises(errors.UnimplementedError, match="layout='NCHW'"):
        theirs(1, layout="NCHW")
    with pytest.raises(TypeError, match=r"theirs\(\): got an unexpected keyword argument 'other'"):
        theirs(1, other=1)


def test_types_are_ours() -> None:
    assert tf.float32 is aexec.float32 and tf.bool is aexec.bool_ and tf.errors is aexec.errors
    assert tf.float32.as_numpy_dtype(1.5) == 1.5 and tf.int32.base_dtype is tf.int32
    assert (tf.float32.name, tf.half.name, tf.bool.name) == ("float32", "float16", "bool")
