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

# Modules of generated functions are `gen_NAME_ops`.
_FAMILIES = """array bitwise candidate_sampling control_flow ctc data_flow dataset image io linalg list logging lookup
math nn parsing random resource_variable rnn script sparse spectral state stateless_random string training""".split()

# Module of `tensorflow.python` → where its names are looked for before those of `tf`: modules of `aexec.compat.v1`, or
# full names of others.
_INNER = {
    "client.device_lib": "device_lib",
    "client.session": "",
    "client.timeline": "timeline",
    "data.ops.dataset_ops": "data",
    "data.ops.iterator_ops": "data",
    "data.util.nest": "nest",
    "eager.context": "",
    "estimator.estimator": "estimator",
    "estimator.inputs.inputs": "aexec.compat.v1.estimator.inputs",
    "estimator.inputs.numpy_io": "aexec.compat.v1.estimator.inputs",
    "estimator.model_fn": "estimator",
    "estimator.run_config": "estimator",
    "estimator.export.export": "aexec.compat.v1.estimator.export",
    "feature_column.feature_column": "feature_column",
    "feature_column.feature_column_lib": "feature_column",
    "framework.constant_op": "",
    "framework.device": "",
    "framework.dtypes": "dtypes",
    "framework.errors": "aexec.framework.errors",
    "framework.errors_impl": "aexec.framework.errors",
    "framework.framework_lib": "",
    "framework.graph_io": "train",
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
    "lib.io.python_io": "io",
    "lib.io.tf_record": "io",
    "ops.array_ops": "",
    "ops.bitwise_ops": "bitwise",
    "ops.candidate_sampling_ops": "nn",
    "ops.check_ops": "debugging",
    "ops.clip_ops": "",
    "ops.confusion_matrix": "",
    "ops.control_flow_ops": "",
    "ops.ctc_ops": "nn",
    "ops.data_flow_ops": "",
    "ops.distributions.bernoulli": "distributions",
    "ops.distributions.categorical": "distributions",
    "ops.distributions.distribution": "distributions",
    "ops.distributions.kullback_leibler": "distributions",
    "ops.distributions.normal": "distributions",
    "ops.distributions.uniform": "distributions",
    "ops.embedding_ops": "nn",
    "ops.functional_ops": "",
    "ops.gradient_checker": "test",
    "ops.gradients": "",
    "ops.gradients_impl": "",
    "ops.histogram_ops": "",
    "ops.image_ops": "image",
    "ops.image_ops_impl": "image",
    "ops.init_ops": "initializers",
    "ops.io_ops": "io",
    "ops.linalg.linalg": "linalg",
    "ops.linalg_ops": "linalg",
    "ops.logging_ops": "",
    "ops.lookup_ops": "lookup",
    "ops.losses.losses": "losses",
    "ops.losses.losses_impl": "losses",
    "ops.manip_ops": "manip",
    "ops.map_fn": "",
    "ops.math_ops": "math",
    "ops.metrics": "metrics",
    "ops.metrics_impl": "metrics",
    "ops.nn": "nn",
    "ops.nn_impl": "nn",
    "ops.nn_ops": "nn",
    "ops.numerics": "",
    "ops.parsing_ops": "io",
    "ops.partitioned_variables": "",
    "ops.ragged.ragged_tensor": "ragged",
    "ops.random_ops": "random",
    "ops.rnn": "nn",
    "ops.rnn_cell": "rnn_cell",
    "ops.rnn_cell_impl": "rnn_cell",
    "ops.script_ops": "",
    "ops.sets": "sets",
    "ops.sets_impl": "sets",
    "ops.signal.signal": "signal",
    "ops.sort_ops": "",
    "ops.sparse_ops": "sparse",
    "ops.special_math_ops": "",
    "ops.spectral_ops": "spectral",
    "ops.standard_ops": "",
    "ops.state_ops": "",
    "ops.stateless_random_ops": "random",
    "ops.string_ops": "strings",
    "ops.summary_ops": "summary",
    "ops.template": "",
    "ops.tensor_array_ops": "",
    "ops.variable_scope": "",
    "ops.variables": "",
    "platform.app": "app",
    "platform.benchmark": "test",
    "platform.flags": "flags",
    "platform.gfile": "gfile",
    "platform.googletest": "test",
    "platform.resource_loader": "resource_loader",
    "platform.test": "test",
    "platform.tf_logging": "logging",
    "profiler.model_analyzer": "profiler",
    "profiler.option_builder": "profiler",
    "pywrap_tensorflow": "train",
    "saved_model.builder": "saved_model",
    "saved_model.builder_impl": "saved_model",
    "saved_model.constants": "saved_model",
    "saved_model.loader": "saved_model",
    "saved_model.loader_impl": "saved_model",
    "saved_model.main_op": "main_op",
    "saved_model.main_op_impl": "main_op",
    "saved_model.signature_constants": "saved_model",
    "saved_model.signature_def_utils": "saved_model",
    "saved_model.signature_def_utils_impl": "saved_model",
    "saved_model.simple_save": "saved_model",
    "saved_model.tag_constants": "saved_model",
    "saved_model.utils": "saved_model",
    "saved_model.utils_impl": "saved_model",
    "summary.summary": "summary",
    "summary.writer.writer": "summary",
    "tools.freeze_graph": "aexec.compat.v1.tools.freeze_graph",
    "tools.inspect_checkpoint": "aexec.compat.v1.tools.inspect_checkpoint",
    "tools.optimize_for_inference_lib": "aexec.compat.v1.tools.optimize_for_inference_lib",
    "tools.saved_model_utils": "aexec.compat.v1.tools.saved_model_utils",
    "tools.strip_unused_lib": "aexec.compat.v1.tools.strip_unused_lib",
    "training.adadelta": "train",
    "training.adagrad": "train",
    "training.adam": "train",
    "training.basic_loops": "train",
    "training.basic_session_run_hooks": "train",
    "training.checkpoint_management": "train",
    "training.checkpoint_utils": "train",
    "training.coordinator": "train",
    "training.device_setter": "train",
    "training.ftrl": "train",
    "training.gradient_descent": "train",
    "training.input": "train",
    "training.learning_rate_decay": "train",
    "training.momentum": "train",
    "training.monitored_session": "train",
    "training.moving_averages": "moving_averages train",
    "training.optimizer": "train",
    "training.proximal_adagrad": "train",
    "training.py_checkpoint_reader": "train",
    "training.queue_runner": "train",
    "training.rmsprop": "train",
    "training.saver": "train",
    "training.server_lib": "train",
    "training.session_manager": "train",
    "training.session_run_hook": "train",
    "training.summary_io": "train",
    "training.supervisor": "train",
    "training.sync_replicas_optimizer": "train",
    "training.training": "train",
    "training.training_util": "train",
    "training.warm_starting_util": "train",
    "util.compat": "compat",
    "util.nest": "nest",
    **{f"ops.gen_{family}_ops": "aexec.ops" for family in _FAMILIES},
}
_MODULES = {f"tensorflow.python.{name}" for name in _INNER}
_PACKAGES = {name.rpartition(".")[0] for name in _INNER} | {"lib"}


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
