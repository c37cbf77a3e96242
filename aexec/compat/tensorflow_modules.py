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
_FAMILIES = """array batch bitwise candidate_sampling control_flow ctc data_flow dataset functional image io linalg list
logging lookup manip math nn parsing random resource_variable rnn script set sparse spectral state stateless_random
string training""".split()

# Module of `tensorflow.python` → where its names are looked for before those of `tf`: modules of `aexec.compat.v1`, or
# full names of others.
_INNER = {
    "client.device_lib": "device_lib",
    "client.session": "",
    "client.timeline": "timeline",
    "data.experimental.ops.batching": "data_experimental data",
    "data.experimental.ops.counter": "data_experimental data",
    "data.experimental.ops.error_ops": "data_experimental data",
    "data.experimental.ops.get_single_element": "data_experimental data",
    "data.experimental.ops.grouping": "data_experimental data",
    "data.experimental.ops.interleave_ops": "data_experimental data",
    "data.experimental.ops.optimization": "data_experimental data",
    "data.experimental.ops.parsing_ops": "data_experimental data",
    "data.experimental.ops.prefetching_ops": "data_experimental data",
    "data.experimental.ops.random_ops": "data_experimental data",
    "data.experimental.ops.readers": "data_experimental data",
    "data.experimental.ops.resampling": "data_experimental data",
    "data.experimental.ops.scan_ops": "data_experimental data",
    "data.experimental.ops.shuffle_ops": "data_experimental data",
    "data.experimental.ops.unique": "data_experimental data",
    "data.experimental.ops.writers": "data_experimental data",
    "data.ops.dataset_ops": "data aexec.compat.v1.inner.datasets",
    "data.ops.iterator_ops": "data",
    "data.ops.readers": "data",
    "data.util.nest": "nest aexec.compat.v1.inner.nested",
    "eager.context": "aexec.compat.v1.inner.modes",
    "estimator.canned.baseline": "estimator",
    "estimator.canned.dnn": "estimator",
    "estimator.canned.dnn_linear_combined": "estimator",
    "estimator.canned.linear": "estimator",
    "estimator.estimator": "estimator",
    "estimator.estimator_lib": "estimator",
    "estimator.export.export": "aexec.compat.v1.estimator.export",
    "estimator.export.export_lib": "aexec.compat.v1.estimator.export",
    "estimator.export.export_output": "aexec.compat.v1.estimator.export",
    "estimator.exporter": "estimator",
    "estimator.inputs.inputs": "aexec.compat.v1.estimator.inputs",
    "estimator.inputs.numpy_io": "aexec.compat.v1.estimator.inputs",
    "estimator.inputs.pandas_io": "aexec.compat.v1.estimator.inputs",
    "estimator.model_fn": "estimator",
    "estimator.run_config": "estimator",
    "estimator.training": "estimator",
    "feature_column.feature_column": "feature_column",
    "feature_column.feature_column_lib": "feature_column",
    "feature_column.feature_column_v2": "feature_column",
    "framework.constant_op": "",
    "framework.device": "",
    "framework.device_spec": "",
    "framework.dtypes": "dtypes",
    "framework.errors": "aexec.framework.errors",
    "framework.errors_impl": "aexec.framework.errors",
    "framework.framework_lib": "",
    "framework.function": "aexec.compat.v1.inner.function",
    "framework.graph_io": "train",
    "framework.graph_util": "graph_util",
    "framework.graph_util_impl": "graph_util",
    "framework.importer": "",
    "framework.indexed_slices": "",
    "framework.ops": "aexec.compat.v1.inner.framework_ops",
    "framework.random_seed": "",
    "framework.smart_cond": "aexec.compat.v1.inner.smart_cond",
    "framework.sparse_tensor": "sparse",
    "framework.tensor_shape": "aexec.compat.v1.inner.shapes",
    "framework.tensor_spec": "",
    "framework.tensor_util": "aexec.compat.v1.inner.tensor_util static_values",
    "framework.test_util": "test",
    "framework.versions": "version",
    "layers.base": "layers",
    "layers.convolutional": "layers",
    "layers.core": "layers",
    "layers.layers": "layers",
    "layers.normalization": "layers",
    "layers.pooling": "layers",
    "layers.utils": "aexec.compat.v1.inner.layer_utils",
    "lib.io.file_io": "aexec.compat.v1.inner.file_io gfile",
    "lib.io.python_io": "io",
    "lib.io.tf_record": "io",
    "ops.array_ops": "",
    "ops.bitwise_ops": "bitwise",
    "ops.candidate_sampling_ops": "nn",
    "ops.check_ops": "debugging",
    "ops.clip_ops": "",
    "ops.confusion_matrix": "",
    "ops.control_flow_ops": "aexec.compat.v1.inner.control_flow",
    "ops.ctc_ops": "nn",
    "ops.custom_gradient": "",
    "ops.data_flow_ops": "",
    "ops.distributions.bernoulli": "distributions",
    "ops.distributions.beta": "distributions",
    "ops.distributions.categorical": "distributions",
    "ops.distributions.dirichlet": "distributions",
    "ops.distributions.dirichlet_multinomial": "distributions",
    "ops.distributions.distribution": "distributions",
    "ops.distributions.distributions": "distributions",
    "ops.distributions.gamma": "distributions",
    "ops.distributions.kullback_leibler": "distributions",
    "ops.distributions.laplace": "distributions",
    "ops.distributions.multinomial": "distributions",
    "ops.distributions.normal": "distributions",
    "ops.distributions.student_t": "distributions",
    "ops.distributions.uniform": "distributions",
    "ops.embedding_ops": "nn",
    "ops.functional_ops": "",
    "ops.gradient_checker": "test",
    "ops.gradients": "",
    "ops.gradients_impl": "",
    "ops.histogram_ops": "",
    "ops.image_ops": "image",
    "ops.image_ops_impl": "image",
    "ops.init_ops": "initializers aexec.compat.v1.inner.initializers",
    "ops.io_ops": "io",
    "ops.linalg.linalg": "linalg",
    "ops.linalg.linalg_impl": "linalg",
    "ops.linalg.linear_operator": "linalg",
    "ops.linalg.linear_operator_diag": "linalg",
    "ops.linalg.linear_operator_full_matrix": "linalg",
    "ops.linalg.linear_operator_identity": "linalg",
    "ops.linalg.linear_operator_lower_triangular": "linalg",
    "ops.linalg_ops": "linalg",
    "ops.logging_ops": "",
    "ops.lookup_ops": "lookup",
    "ops.losses.loss_reduction": "losses",
    "ops.losses.losses": "losses",
    "ops.losses.losses_impl": "losses",
    "ops.losses.util": "losses",
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
    "ops.partitioned_variables": "aexec.compat.v1.inner.variables",
    "ops.ragged.ragged_factory_ops": "ragged",
    "ops.ragged.ragged_tensor": "ragged",
    "ops.random_ops": "random",
    "ops.resource_variable_ops": "aexec.compat.v1.inner.variables aexec.ops",
    "ops.rnn": "nn aexec.compat.v1.inner.recurrent",
    "ops.rnn_cell": "rnn_cell aexec.compat.v1.inner.recurrent",
    "ops.rnn_cell_impl": "rnn_cell aexec.compat.v1.inner.recurrent",
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
    "ops.variables": "aexec.compat.v1.inner.variables",
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
    "profiler.profiler": "profiler",
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
    "summary.summary_iterator": "train",
    "summary.writer.writer": "summary",
    "summary.writer.writer_cache": "summary",
    "tools.freeze_graph": "aexec.compat.v1.tools.freeze_graph",
    "tools.inspect_checkpoint": "aexec.compat.v1.tools.inspect_checkpoint",
    "tools.optimize_for_inference_lib": "aexec.compat.v1.tools.optimize_for_inference_lib",
    "tools.saved_model_utils": "aexec.compat.v1.tools.saved_model_utils",
    "tools.strip_unused_lib": "aexec.compat.v1.tools.strip_unused_lib",
    "training.adadelta": "train",
    "training.adagrad": "train",
    "training.adagrad_da": "train",
    "training.adam": "train",
    "training.basic_loops": "train",
    "training.basic_session_run_hooks": "train",
    "training.checkpoint_management": "train",
    "training.checkpoint_utils": "train",
    "training.coordinator": "train",
    "training.device_setter": "train",
    "training.ftrl": "train",
    "training.gen_training_ops": "aexec.ops",
    "training.gradient_descent": "train",
    "training.input": "train",
    "training.learning_rate_decay": "train",
    "training.momentum": "train",
    "training.monitored_session": "train",
    "training.moving_averages": "moving_averages train",
    "training.optimizer": "train",
    "training.proximal_adagrad": "train",
    "training.proximal_gradient_descent": "train",
    "training.py_checkpoint_reader": "train",
    "training.queue_runner": "train",
    "training.rmsprop": "train",
    "training.saver": "train",
    "training.server_lib": "train",
    "training.session_manager": "train",
    "training.session_run_hook": "train",
    "training.slot_creator": "aexec.compat.v1.inner.slot_creator",
    "training.summary_io": "train",
    "training.supervisor": "train",
    "training.sync_replicas_optimizer": "train",
    "training.training": "train",
    "training.training_ops": "aexec.ops",
    "training.training_util": "train",
    "training.warm_starting_util": "train",
    "util.compat": "compat",
    "util.deprecation": "aexec.compat.v1.inner.deprecation",
    "util.lazy_loader": "aexec.compat.v1.inner.decorators",
    "util.nest": "nest aexec.compat.v1.inner.nested",
    "util.tf_contextlib": "aexec.compat.v1.inner.decorators",
    "util.tf_decorator": "aexec.compat.v1.inner.decorators",
    "util.tf_export": "aexec.compat.v1.inner.decorators",
    "util.tf_inspect": "aexec.compat.v1.inner.tf_inspect",
    "util.tf_should_use": "aexec.compat.v1.inner.decorators",
    **{f"ops.gen_{family}_ops": "aexec.ops" for family in _FAMILIES},
}
# Packages of `tensorflow.python` that are not there, with what to use instead.
_ABSENT = {
    "autograph": "loops and conditions are tf.while_loop and tf.cond",
    "debug": "tf.Print shows tensors, and docs/profiling.md says how to trace a run",
    "distribute": "see docs/distributed.md, and docs/training.md for several replicas",
    "eager": "there is no eager execution: build a graph and run it in a session",
    "grappler": "graphs are rewritten by aexec's own passes",
    "keras": "layers are functions here, as those of tf.layers",
    "tpu": "there are no TPUs",
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
            if (why := _absent(rest)) is not None:
                raise ModuleNotFoundError(f"{fullname}: {why}", name=fullname)
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


def _absent(rest: str) -> str | None:
    """Why a module of `tensorflow.python` is not there, by its package; None if nothing is known of that."""
    area, _, inner = rest.partition(".")
    return _ABSENT.get(inner.partition(".")[0]) if area == "python" else None


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
