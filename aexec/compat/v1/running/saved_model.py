"""`tf.saved_model`: reading and writing SavedModels with TensorFlow's arguments, over `aexec.saved_model`.

Next to read: `aexec/saved_model/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aexec import saved_model
from aexec.compat.v1.namespace import namespace, refuse
from aexec.compat.v1.running.session import AsyncSession, in_session
from aexec.framework import errors
from aexec.graph.signature import Signature, TensorInfo
from aexec.saved_model import graph_collections
from aexec.training.saver import Saver

__all__ = ["build_signature_def", "build_tensor_info", "load", "predict_signature_def", "simple_save"]


def build_tensor_info(tensor: Any) -> TensorInfo:
    """`tf.saved_model.build_tensor_info`."""
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
    """`tf.saved_model.predict_signature_def`: of tensors."""
    return Signature.of(inputs, outputs)


def simple_save(
    session: Any,
    export_dir: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    legacy_init_op: Any = None,
) -> Any:
    """`tf.saved_model.simple_save`; awaited with an `AsyncSession`."""
    refuse("simple_save", legacy_init_op=legacy_init_op)
    signature = predict_signature_def(inputs, outputs)
    return in_session(session, saved_model.save_saved_model, export_dir, {"serving_default": signature})


def load(sess: Any, tags: Iterable[str], export_dir: str, import_scope: str | None = None, **saver_kwargs: Any) -> Any:
    """`tf.saved_model.load`: into the graph of a session, whose variables it restores.

    Returns:
        The model, with its `signatures`.
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
    return model


class _Tags:
    SERVING = "serve"
    TRAINING = "train"


class _Keys:
    DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"


tag_constants = _Tags
signature_constants = _Keys

__getattr__, __dir__ = namespace(
    __name__,
    {"maybe_saved_model_directory": "aexec.saved_model:is_saved_model | export_dir=directory"},
    {
        "Builder": "use tf.saved_model.simple_save, or aexec.saved_model.save_saved_model",
        "builder": "use tf.saved_model.simple_save, or aexec.saved_model.save_saved_model",
        "loader": "use tf.saved_model.load",
    },
)
