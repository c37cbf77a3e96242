"""Exports a `Model` as a SavedModel, into a folder named by the seconds since 1970.

The folder is written under a temporary name and then renamed, so a server that watches the parent never loads a part.
Next to read: `exporters.py`.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from aexec import saved_model
from aexec.client.building import group
from aexec.compat.v1.estimator.export import ExportOutput, PredictOutput
from aexec.compat.v1.estimator.model import Model
from aexec.compat.v1.estimator.model_spec import EstimatorSpec, ModeKeys
from aexec.compat.v1.functions.control_flow_ops import tables_initializer
from aexec.compat.v1.running.session import Session, in_session
from aexec.compat.v1.running.training import Saver, latest_checkpoint
from aexec.compat.v1.values.static_values import get_static_value
from aexec.framework import errors
from aexec.graph.collections import GraphKeys
from aexec.graph.op_functions import require_graph
from aexec.graph.signature import Signature
from aexec.variables.initialization import local_variables_initializer

__all__ = ["export"]

_LOGGER = logging.getLogger("tensorflow")
_DEFAULT = "serving_default"
_TRIES = 10


def export(
    model: Model,
    folder: str,
    receiver_fn: Callable[[], Any],
    assets_extra: Mapping[str, str] | None,
    checkpoint_path: str | None,
    strip_default_attrs: bool,
) -> bytes:
    """Write a SavedModel; return the path of its folder.

    Args:
        folder: parent of the new folder.
        receiver_fn: returns a `ServingInputReceiver`.
        assets_extra: path inside `assets.extra` → file to copy there.
        checkpoint_path: by default the latest checkpoint.
        strip_default_attrs: leave out the attributes of nodes that have their op's default value.

    Raises:
        ValueError: there is no checkpoint, `receiver_fn` is None, or no export output fits the receiver's inputs.
    """
    if receiver_fn is None:
        raise errors.InvalidValueError("An input_receiver_fn must be defined.")
    path = checkpoint_path or latest_checkpoint(model.model_dir)
    if not path:
        raise errors.InvalidValueError(f"Couldn't find trained model at {model.model_dir}.")
    target = _new_folder(folder)
    written = os.path.join(folder, f"temp-{os.path.basename(target)}")
    with model.building():
        receiver = receiver_fn()
        spec = model.call(receiver.features, getattr(receiver, "labels", None), ModeKeys.PREDICT)
        _write(model, spec, path, written, _signatures(receiver, _outputs(spec)), strip_default_attrs)
    for inside, source in (assets_extra or {}).items():
        copy = os.path.join(written, "assets.extra", inside)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copyfile(source, copy)
    os.rename(written, target)
    _LOGGER.info("SavedModel written to: %s", target)
    return os.fsencode(target)


def _write(
    model: Model,
    spec: EstimatorSpec,
    path: str,
    folder: str,
    signatures: Mapping[str, Signature],
    strip_default_attrs: bool,
) -> None:
    saver = spec.scaffold.saver or Saver(sharded=True)
    main_op = spec.scaffold.local_init_op
    if main_op is None:
        main_op = group(local_variables_initializer(), tables_initializer())
    files = require_graph().collections.get(GraphKeys.ASSET_FILEPATHS)
    with Session(config=model.config.session_config) as session:
        saver.restore(session, path)
        in_session(
            session,
            saved_model.save_saved_model,
            folder,
            signatures,
            main_op=main_op,
            assets={tensor: os.fsdecode(get_static_value(tensor).item()) for tensor in files},
            saver=saver.ours,
            strip_default_attrs=strip_default_attrs,
        )


def _outputs(spec: EstimatorSpec) -> dict[str, ExportOutput]:
    """The model's export outputs by name, among them `serving_default`.

    A single output also becomes the default.  A model without export outputs exports its predictions.

    Raises:
        TypeError: an output is not an `ExportOutput`.
        ValueError: there are several outputs, and none is named `serving_default`.
    """
    if not spec.export_outputs:
        return {_DEFAULT: PredictOutput(spec.predictions)}
    outputs = dict(spec.export_outputs)
    for name, output in outputs.items():
        if not isinstance(output, ExportOutput):
            raise errors.InvalidTypeError(
                f"Values in export_outputs must be ExportOutput objects. Given: {output!r} under {name}"
            )
    if _DEFAULT not in outputs:
        if len(outputs) > 1:
            raise errors.InvalidValueError(
                "Multiple export_outputs were provided, but none of them is specified as the default. Do this by "
                "naming one of them with signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY."
            )
        outputs[_DEFAULT] = next(iter(outputs.values()))
    return outputs


def _signatures(receiver: Any, outputs: Mapping[str, ExportOutput]) -> dict[str, Signature]:
    """Make a signature of each output with each group of receiver tensors that fits it.

    Names are those of outputs; an alternative group puts its name and a colon before them.

    Raises:
        ValueError: no output fits a group.
    """
    groups = {"": receiver.receiver_tensors}
    groups |= {f"{name}:": group for name, group in receiver.receiver_tensors_alternatives.items()}
    found: dict[str, Signature] = {}
    others: dict[str, str] = {}
    for of_inputs, tensors in groups.items():
        for name, output in outputs.items():
            try:
                found[of_inputs + name] = output.as_signature_def(tensors)
            except ValueError as error:
                others[of_inputs + name] = str(error)
    for name, signature in found.items():
        _LOGGER.info("Signature %s: %s", name, signature.method_name)
    for name, why in others.items():
        _LOGGER.info("Signature %s is left out: %s", name, why)
    if not found:
        raise errors.InvalidValueError(f"No signature is valid: {others}")
    return found


def _new_folder(parent: str) -> str:
    """A path in `parent` that does not exist: the seconds since 1970.  Waits for the next second if one does.

    Raises:
        RuntimeError: the paths of ten seconds exist already.
    """
    for _ in range(_TRIES):
        path = os.path.join(parent, str(int(time.time())))
        if not os.path.exists(path):
            return path
        time.sleep(1)
        _LOGGER.warning("Directory %s already exists; retrying", path)
    raise RuntimeError(f"Failed to obtain a unique export directory name after {_TRIES} attempts.")
