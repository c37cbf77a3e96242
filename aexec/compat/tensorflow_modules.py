"""TensorFlow's names of modules for one process: `import tensorflow as tf` then gives `aexec.compat.v1`.

`install` adds a finder in front of all others.  It leads `tensorflow`, `tensorflow.compat.v1` and their public modules
to those of `aexec.compat.v1`, and the modules of `tensorflow.python` and `tensorflow.core` that programs import most to
the same names in public ones.  Next to read: `run.py`, the command that uses it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from aexec.compat.v1.modules import SecondName

__all__ = ["install"]

_V1 = "aexec.compat.v1"

# Module of `tensorflow.python` → where its names are looked for before those of `tf`: modules of `aexec.compat.v1`, or
# full names of others.
_INNER = {
    "client.device_lib": "device_lib",
    "client.session": "",
    "client.timeline": "timeline",
    "eager.context": "",
    "framework.constant_op": "",
    "framework.device": "",
    "framework.dtypes": "dtypes",
    "framework.errors": "aexec.framework.errors",
    "framework.errors_impl": "aexec.framework.errors",
    "framework.framework_lib": "",
    "framework.graph_util": "graph_util",
    "framework.importer": "",
    "framework.ops": "",
    "framework.random_seed": "",
    "framework.sparse_tensor": "sparse",
    "framework.tensor_shape": "",
    "framework.tensor_util": "static_values",
    "framework.test_util": "test",
    "layers.base": "layers",
    "layers.convolutional": "layers",
    "layers.core": "layers",
    "layers.layers": "layers",
    "layers.normalization": "layers",
    "layers.pooling": "layers",
    "lib.io.file_io": "gfile",
    "lib.io.tf_record": "io",
    "ops.array_ops": "",
    "ops.candidate_sampling_ops": "nn",
    "ops.check_ops": "debugging",
    "ops.clip_ops": "",
    "ops.control_flow_ops": "",
    "ops.ctc_ops": "nn",
    "ops.data_flow_ops": "",
    "ops.embedding_ops": "nn",
    "ops.functional_ops": "",
    "ops.gradients": "",
    "ops.gradients_impl": "",
    "ops.image_ops": "image",
    "ops.image_ops_impl": "image",
    "ops.init_ops": "initializers",
    "ops.io_ops": "io",
    "ops.linalg_ops": "linalg",
    "ops.logging_ops": "",
    "ops.losses.losses": "losses",
    "ops.losses.losses_impl": "losses",
    "ops.math_ops": "math",
    "ops.metrics": "metrics",
    "ops.metrics_impl": "metrics",
    "ops.nn": "nn",
    "ops.nn_impl": "nn",
    "ops.nn_ops": "nn",
    "ops.parsing_ops": "io",
    "ops.partitioned_variables": "",
    "ops.random_ops": "random",
    "ops.rnn": "nn",
    "ops.rnn_cell": "rnn_cell",
    "ops.rnn_cell_impl": "rnn_cell",
    "ops.script_ops": "",
    "ops.sparse_ops": "sparse",
    "ops.standard_ops": "",
    "ops.state_ops": "",
    "ops.string_ops": "strings",
    "ops.template": "",
    "ops.tensor_array_ops": "",
    "ops.variable_scope": "",
    "ops.variables": "",
    "platform.app": "app",
    "platform.flags": "flags",
    "platform.gfile": "gfile",
    "platform.googletest": "test",
    "platform.test": "test",
    "platform.tf_logging": "logging",
    "saved_model.builder": "saved_model",
    "saved_model.loader": "saved_model",
    "saved_model.signature_constants": "saved_model",
    "saved_model.signature_def_utils": "saved_model",
    "saved_model.tag_constants": "saved_model",
    "saved_model.utils": "saved_model",
    "summary.summary": "summary",
    "summary.writer.writer": "summary",
    "training.adagrad": "train",
    "training.adam": "train",
    "training.basic_session_run_hooks": "train",
    "training.checkpoint_management": "train",
    "training.checkpoint_utils": "train",
    "training.coordinator": "train",
    "training.ftrl": "train",
    "training.gradient_descent": "train",
    "training.input": "train",
    "training.learning_rate_decay": "train",
    "training.momentum": "train",
    "training.monitored_session": "train",
    "training.moving_averages": "moving_averages train",
    "training.optimizer": "train",
    "training.queue_runner": "train",
    "training.rmsprop": "train",
    "training.saver": "train",
    "training.session_run_hook": "train",
    "training.training": "train",
    "training.training_util": "train",
    "util.compat": "compat",
    "util.nest": "nest",
    **{f"ops.gen_{family}_ops": "aexec.ops" for family in "array math nn state data_flow sparse image random".split()},
}
_MODULES = {f"tensorflow.python.{name}" for name in _INNER}
_PACKAGES = {name.rpartition(".")[0] for name in _INNER} | {"ops.losses", "summary.writer", "lib"}


class _Borrowing(ModuleType):
    """A module whose names are those of other modules, the first that has one."""

    def __init__(self, name: str, places: Sequence[str]) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # so that modules inside it are asked of the finder
        self._places = places

    def __getattr__(self, name: str) -> Any:
        if f"{self.__name__}.{name}" in _MODULES:  # `from tensorflow.python.ops import variable_scope` is the module
            return importlib.import_module(f"{self.__name__}.{name}")
        if not name.startswith("__"):
            for place in self._places:
                found = getattr(importlib.import_module(place), name, None)
                if found is not None:
                    return found
        raise AttributeError(f"{self.__name__} has no {name!r}: take the public name, as tf.Tensor", name=name)


class _Borrowed(Loader):
    """Makes a module that borrows all its names."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = places

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Borrowing(spec.name, self._places)

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: names are looked up when they are used."""


class _Public(SecondName):
    """A module of ours under TensorFlow's name, inside which further modules may be asked for."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if not hasattr(module, "__path__"):
            module.__path__ = []


class _TensorFlow(MetaPathFinder):
    """Finds `tensorflow` and all inside it; what is missing is a ModuleNotFoundError that says so."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Called before all other finders."""
        top, _, rest = fullname.partition(".")
        if top != "tensorflow":
            return None
        rest = "" if rest == "compat.v1" else rest.removeprefix("compat.v1.")
        if (loader := _loader(rest)) is None:
            package, _, name = f"{_V1}.{rest}".rpartition(".")
            find_spec(f"{package}.{name}")  # explains why, where it can
            raise ModuleNotFoundError(f"{fullname}: aexec.compat has nothing for it", name=fullname)
        return ModuleSpec(fullname, loader, is_package=True)


def _loader(rest: str) -> Loader | None:
    """Return the loader of a module of TensorFlow, by its name inside `tensorflow`; None if it does not exist."""
    area, _, inner = rest.partition(".")
    if area == "python":
        if inner in _INNER:
            names = _INNER[inner].split()
            return _Borrowed([*(name if "." in name else f"{_V1}.{name}" for name in names), _V1])
        return _Borrowed([_V1]) if not inner or inner in _PACKAGES or _starts_package(inner) else None
    if area == "core":
        ours = f"aexec.proto.{inner}" if inner else "aexec.proto"
        return _Public(ours) if _exists(ours) else None
    if area == "contrib" and ".python" in inner:
        return _Borrowed([f"{_V1}.contrib.{inner.partition('.')[0]}", _V1])
    if area == "examples":
        ours = "aexec.compat.mnist"
        return _Public(ours) if rest == "examples.tutorials.mnist.input_data" else _Borrowed([_V1])
    ours = f"{_V1}.{rest}".rstrip(".")
    return _Public(ours) if _exists(ours) else None


def _starts_package(inner: str) -> bool:
    return any(name.startswith(f"{inner}.") for name in _INNER)


def _exists(name: str) -> bool:
    package = name.rpartition(".")[0]
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name is not None and (error.name == name or package.startswith(error.name)):
            return False
        raise


def install() -> None:
    """From now on `import tensorflow` gives `aexec.compat.v1`, in this process.

    Raises:
        RuntimeError: TensorFlow itself is imported already.
    """
    if "tensorflow" in sys.modules:
        raise RuntimeError("tensorflow is imported already: install these names before")
    sys.meta_path.insert(0, _TensorFlow())
