"""`tf.saved_model`: reading and writing SavedModels with TensorFlow's arguments, over `aexec.saved_model`.

Next to read: `aexec/saved_model/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from aexec import proto, saved_model
from aexec.compat.v1.namespace import chosen, namespace, refuse
from aexec.compat.v1.running.session import AsyncSession, in_session
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework import dtypes, errors
from aexec.framework.dtypes import as_dtype
from aexec.graph.signature import Signature, TensorInfo
from aexec.saved_model import graph_collections
from aexec.training.saver import Saver

__all__ = [
    "LoadedModel",
    "SavedModelBuilder",
    "build_signature_def",
    "build_tensor_info",
    "classification_signature_def",
    "constants",
    "get_tensor_from_tensor_info",
    "is_valid_signature",
    "load",
    "predict_signature_def",
    "regression_signature_def",
    "simple_save",
]


def build_tensor_info(tensor: Any) -> TensorInfo:
    """`tf.saved_model.build_tensor_info`: name, dtype and shape of a tensor."""
    return TensorInfo.of(getattr(tensor, "element", tensor))


def build_signature_def(
    inputs: Mapping[str, TensorInfo] | None = None,
    outputs: Mapping[str, TensorInfo] | None = None,
    method_name: str | None = None,
    defaults: Any = None,
) -> Signature:
    """`tf.saved_model.build_signature_def`."""
    refuse("build_signature_def", defaults=defaults)
    named = {} if method_name is None else {"method_name": method_name}
    return Signature(dict(inputs or {}), dict(outputs or {}), **named)


def predict_signature_def(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Signature:
    """`tf.saved_model.predict_signature_def`: a signature from name → tensor of inputs and outputs."""
    return Signature.of(inputs, outputs)


def simple_save(
    session: Any,
    export_dir: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    legacy_init_op: Any = None,
) -> Any:
    """`tf.saved_model.simple_save`: write a model with the signature `serving_default`.

    Returns:
        The model's directory, or an awaitable with an `AsyncSession`.

    Raises:
        AlreadyExistsError: the directory holds a model.
        UnimplementedError: `legacy_init_op` is given.
    """
    refuse("simple_save", legacy_init_op=legacy_init_op)
    signature = predict_signature_def(inputs, outputs)
    return in_session(session, saved_model.save_saved_model, export_dir, {"serving_default": signature})


class LoadedModel(saved_model.SavedModel):
    """A loaded model with the fields of a MetaGraphDef, which TensorFlow returns."""

    @cached_property
    def _message(self) -> proto.MetaGraphDef:
        return self.meta_graph.to_proto()

    @property
    def graph_def(self) -> proto.GraphDef:
        """The graph, as a message."""
        return self._message.graph_def

    @property
    def signature_def(self) -> Any:
        """Name → SignatureDef message."""
        return self._message.signature_def

    @property
    def collection_def(self) -> Any:
        """Name → CollectionDef message."""
        return self._message.collection_def

    @property
    def meta_info_def(self) -> Any:
        """Tags and versions, as a message."""
        return self._message.meta_info_def


def load(sess: Any, tags: Iterable[str], export_dir: str, import_scope: str | None = None, **saver_kwargs: Any) -> Any:
    """`tf.saved_model.load`: import a model into a session's graph, and restore its variables there.

    Args:
        tags: the tags of the MetaGraph to load.

    Returns:
        A `LoadedModel`.

    Raises:
        NotFoundError: there is no model in the directory.
        UnimplementedError: the session is an `AsyncSession`, or `import_scope` is given for a model with variables.
    """
    refuse("saved_model.load", **saver_kwargs)
    if isinstance(sess, AsyncSession):
        raise errors.UnsupportedError("saved_model.load: with an AsyncSession await aexec.load_saved_model_async")
    model = saved_model.load_saved_model(export_dir, tags)
    with sess.graph:
        graph_collections.import_meta_graph(model.meta_graph, import_scope=import_scope or "")
    if saved_model.has_values_to_restore(model):
        definition = model.meta_graph.saver_def
        refuse("saved_model.load", import_scope=import_scope)
        in_session(sess, Saver(saver_def=definition).restore, model.variables_prefix)
    if model.init_op is not None:
        feeds = model.asset_feeds()
        sess.run(model.init_op, feeds)
    return LoadedModel(model.directory, model.meta_graph)


class SavedModelBuilder:
    """`tf.saved_model.Builder`: writes a model into a new directory.

    Raises:
        AssertionError: the directory has a model already.
    """

    def __init__(self, export_dir: str) -> None:
        if os.path.isdir(export_dir) and os.listdir(export_dir):
            raise AssertionError(
                f"Export directory {export_dir} already exists, and isn't empty. Please choose a different export "
                "directory, or delete all the contents of the specified directory."
            )
        self._export_dir = export_dir
        self._is_written = False

    def add_meta_graph_and_variables(
        self,
        sess: Any,
        tags: Iterable[str],
        signature_def_map: Mapping[str, Signature] | None = None,
        assets_list: Any = None,
        clear_devices: bool = False,
        init_op: Any = None,
        train_op: Any = None,
        strip_default_attrs: bool = False,
        saver: Any = None,
        main_op: Any = None,
        legacy_init_op: Any = None,
    ) -> Any:
        """Write the session's graph and variables.

        Args:
            tags: tags of the graph.
            signature_def_map: name → signature.
            clear_devices: leave out the devices that nodes request.
            init_op, main_op, legacy_init_op: at most one: an operation to run when the model is loaded.
            strip_default_attrs: leave out the attributes of nodes that have their op's default value.

        Returns:
            The model's directory, or an awaitable with an `AsyncSession`.

        Raises:
            UnimplementedError: a graph was added before, or assets, a saver or a `train_op` are given.
            ValueError: more than one operation is given.
        """
        refuse("SavedModelBuilder", assets_list=assets_list, train_op=train_op, saver=saver)
        if self._is_written:
            raise errors.UnsupportedError("SavedModelBuilder: a model has one graph here")
        self._is_written = True
        first = chosen(init_op=init_op, main_op=main_op, legacy_init_op=legacy_init_op)
        return in_session(
            sess,
            saved_model.save_saved_model,
            self._export_dir,
            dict(signature_def_map or {}),
            tags=tuple(tags),
            main_op=first,
            clear_devices=clear_devices,
            strip_default_attrs=strip_default_attrs,
        )

    def add_meta_graph(self, *args: Any, **kwargs: Any) -> None:
        """Always raises UnimplementedError: the builder writes one graph."""
        raise errors.UnsupportedError("SavedModelBuilder: a model has one graph here")

    def save(self, as_text: bool = False) -> str:
        """Return the path of the model's file, which `add_meta_graph_and_variables` has written.

        Raises:
            AssertionError: no graph was added.
            UnimplementedError: `as_text` is True.
        """
        refuse("SavedModelBuilder.save", as_text=as_text)
        if not self._is_written:
            raise AssertionError("Graph state including variables and assets has not been saved yet.")
        return os.path.join(self._export_dir, "saved_model.pb")


def classification_signature_def(examples: Any, classes: Any = None, scores: Any = None) -> Signature:
    """`tf.saved_model.classification_signature_def`: a signature that classifies serialized Examples.

    Args:
        examples: serialized Examples, string.
        classes: names of classes, string; or None.
        scores: floating; or None.
    """
    given = {"classes": classes, "scores": scores}
    outputs = {name: build_tensor_info(tensor) for name, tensor in given.items() if tensor is not None}
    inputs = {"inputs": build_tensor_info(examples)}
    return build_signature_def(inputs, outputs, "tensorflow/serving/classify")


def regression_signature_def(examples: Any, predictions: Any) -> Signature:
    """`tf.saved_model.regression_signature_def`: a signature from serialized Examples (string) to predictions."""
    inputs, outputs = {"inputs": build_tensor_info(examples)}, {"outputs": build_tensor_info(predictions)}
    return build_signature_def(inputs, outputs, "tensorflow/serving/regress")


class _Tags:
    SERVING = "serve"
    TRAINING = "train"
    GPU = "gpu"
    TPU = "tpu"


class _Keys:
    CLASSIFY_INPUTS = "inputs"
    CLASSIFY_METHOD_NAME = "tensorflow/serving/classify"
    CLASSIFY_OUTPUT_CLASSES = "classes"
    CLASSIFY_OUTPUT_SCORES = "scores"
    DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"
    PREDICT_INPUTS = "inputs"
    PREDICT_METHOD_NAME = "tensorflow/serving/predict"
    PREDICT_OUTPUTS = "outputs"
    REGRESS_INPUTS = "inputs"
    REGRESS_METHOD_NAME = "tensorflow/serving/regress"
    REGRESS_OUTPUTS = "outputs"


class _Names:
    ASSETS_DIRECTORY = "assets"
    ASSETS_KEY = "saved_model_assets"
    DEBUG_DIRECTORY = "debug"
    DEBUG_INFO_FILENAME_PB = "saved_model_debug_info.pb"
    LEGACY_INIT_OP_KEY = "legacy_init_op"
    MAIN_OP_KEY = "saved_model_main_op"
    SAVED_MODEL_FILENAME_PB = "saved_model.pb"
    SAVED_MODEL_FILENAME_PBTXT = "saved_model.pbtxt"
    SAVED_MODEL_SCHEMA_VERSION = 1
    VARIABLES_DIRECTORY = "variables"
    VARIABLES_FILENAME = "variables"


tag_constants = _Tags
signature_constants = _Keys
constants = _Names

# `tf.saved_model` also has the constants themselves, without their classes.
globals().update(
    {name: value for kind in (_Tags, _Keys, _Names) for name, value in vars(kind).items() if name.isupper()}
)


def get_tensor_from_tensor_info(tensor_info: Any, graph: Any = None, import_scope: str | None = None) -> Any:
    """`tf.saved_model.get_tensor_from_tensor_info`: the tensor that a TensorInfo message names.

    Args:
        graph: by default the default graph.
        import_scope: the scope into which the message's graph was imported.
    """
    name = tensor_info.name if not import_scope else f"{import_scope}/{tensor_info.name}"
    return (graph or get_default_graph()).get_tensor_by_name(name)


def is_valid_signature(signature_def: Any) -> bool:
    """`tf.saved_model.is_valid_signature`: whether a signature has the inputs and outputs that its method requires."""
    if signature_def is None or not signature_def.inputs or not signature_def.outputs:
        return False
    inputs, outputs = signature_def.inputs, signature_def.outputs
    if signature_def.method_name == _Keys.PREDICT_METHOD_NAME:
        return True
    found = {name: as_dtype(info.dtype) for name, info in outputs.items()}
    if {name: as_dtype(info.dtype) for name, info in inputs.items()} != {"inputs": dtypes.string}:
        return False
    if signature_def.method_name == _Keys.REGRESS_METHOD_NAME:
        return found == {"outputs": dtypes.float32}
    if signature_def.method_name != _Keys.CLASSIFY_METHOD_NAME:
        return False
    kinds = {"classes": dtypes.string, "scores": dtypes.float32}
    return all(kinds.get(name) is dtype for name, dtype in found.items())


__getattr__, __dir__ = namespace(
    __name__,
    {
        "Builder": "running.saved_model:SavedModelBuilder",
        # TensorFlow's submodules; all their names are in this module.
        **dict.fromkeys("builder loader signature_def_utils utils".split(), "running.saved_model"),
        "main_op": "running.main_op",
        "main_op_with_restore": "running.main_op:main_op_with_restore",
        "contains_saved_model": "aexec.saved_model:is_saved_model | export_dir=directory",
        "maybe_saved_model_directory": "aexec.saved_model:is_saved_model | export_dir=directory",
    },
)
