"""The tables of names: each name has an implementation with TensorFlow's arguments; a missing name gives a reason."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

import aexec
import aexec.compat.v1 as tf
from aexec import errors
from aexec.client import input as _input
from aexec.compat.v1.namespace import renamed
from aexec.framework.op_contract import op_registry
from aexec.graph.op_functions import function_names
from tests.compat.recorded.names import FILE, callables, resolve
from tests.compat.recorded.record import plain

# Of TensorFlow 2.21: names of arguments; `record.py` wrote them.
SIGNATURES: dict[str, list[str]] = json.loads((FILE.parent / "signatures.json").read_text())

# What has other arguments: classes of ours that programs name and do not make, and what a base class does not say.
OTHERWISE = {
    "DType",
    "RaggedTensor",
    "VariableScope",
    "data.Dataset",
    "data.Iterator",
    "dtypes.DType",
    "flags.Flag",
    "flags.FlagHolder",
    "train.SessionRunContext",
}


def test_all_names_lead_somewhere() -> None:
    """No recorded name has disappeared; new names need not be recorded yet."""
    assert set(FILE.read_text().split()) <= set(callables())


def arguments(name: str) -> list[str]:
    parameters = inspect.signature(resolve(name)).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]


def test_no_module_hides_a_name_of_its_package() -> None:
    """An import sets the submodule as an attribute of its package, and `__getattr__` is not asked any more."""
    found = {}
    for package in pkgutil.walk_packages(tf.__path__, f"{tf.__name__}."):
        if not package.ispkg or not hasattr(module := importlib.import_module(package.name), "__getattr__"):
            continue
        for name in {inner.name for inner in pkgutil.iter_modules(module.__path__)} & set(dir(module)):
            inner = importlib.import_module(f"{package.name}.{name}")
            found[inner.__name__] = module.__getattr__(name) is inner
    assert found["aexec.compat.v1.estimator.inputs"] and all(found.values()), found


def test_arguments() -> None:
    """Arguments have TensorFlow's names and order; aexec's functions may have more at the end."""
    functions = {name: theirs for name, theirs in SIGNATURES.items() if name not in OTHERWISE and not is_message(name)}
    assert len(functions) > 700
    other = {name: (arguments(name), theirs) for name, theirs in functions.items()}
    assert not {name: both for name, both in other.items() if both[0][: len(both[1])] != both[1]}


# Arguments that `use_cudnn_on_gpu=` of a table takes and aexec has no use for are not compared; nor are names of nodes,
# which tests of names compare.  None of TensorFlow's means that a function chooses.

# What means the same as TensorFlow's default.
SAME: dict[str, set[str]] = {
    "1 for each axis": {"strides", "dilation_rate", "dilations"},
    "chosen by the step": {"trainable"},
}

# Functions whose options go to another one, which has the defaults.
PASSED_ON: dict[str, Callable[..., Any]] = {
    **dict.fromkeys("range_input_producer slice_input_producer string_input_producer".split(), _input.input_producer),
    **dict.fromkeys(
        """batch batch_join maybe_batch maybe_batch_join maybe_shuffle_batch
    maybe_shuffle_batch_join shuffle_batch shuffle_batch_join""".split(),
        _input._batch,
    ),
}


def default(function: Any, argument: str) -> Any:
    """The default of an argument: from the function, from the function that it wraps, or from the op's attr."""
    found = inspect.signature(function).parameters[argument].default
    ours, names, unsupported = getattr(function, "renames", (None, {}, ()))
    if found is not None or argument in unsupported:
        return found
    below = names.get(argument) if ours is not None else argument
    if not below:
        return IGNORED
    if ours is None:
        return of_op(function, below)
    if below in inspect.signature(ours).parameters:
        return default(ours, below)
    options = PASSED_ON.get(function.__name__)
    return None if options is None else inspect.signature(options).parameters[below].default


def of_op(function: Any, argument: str) -> Any:
    """The default of an attr of an op; None if it is no op, or has none."""
    if function is not getattr(aexec.ops, function.__name__, None):
        return None
    attrs = op_registry.global_registry.lookup(function_names()[function.__name__]).op_def.attrs
    return next((attr.default for attr in attrs if attr.name == argument and attr.has_default), None)


IGNORED = object()


def is_same(ours: Any, theirs: Any, argument: str) -> bool:
    if isinstance(theirs, dict) and isinstance(ours, str):
        ours = {"dtype": ours}
    if argument in SAME["1 for each axis"] and isinstance(theirs, list):
        return ours in (1, theirs)
    if ours is None and argument in SAME["chosen by the step"]:
        return theirs is True  # `FunctionLayer` and layers' functions take None for it
    return bool(ours == theirs) or (ours is None and theirs in (False, 0) and theirs is not None)


def test_defaults() -> None:
    """Compares only the defaults of TensorFlow that are plain values."""
    recorded: dict[str, dict[str, Any]] = json.loads((FILE.parent / "defaults.json").read_text())
    compared, other = 0, {}
    for name, theirs in recorded.items():
        if name in OTHERWISE or is_message(name):
            continue
        function = resolve(name)
        for argument, value in theirs.items():
            if argument == "name" or value is None or argument not in inspect.signature(function).parameters:
                continue
            ours = default(function, argument)
            if ours is not IGNORED:
                compared += 1
                if not is_same(plain(ours), value, argument):
                    other[f"{name}: {argument}"] = ours, value
    assert compared > 1000
    assert not other


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
        ("train.WorkerSessionCreator", "docs/distributed.md"),
        ("estimator.BoostedTreesClassifier", "model_fn"),
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
