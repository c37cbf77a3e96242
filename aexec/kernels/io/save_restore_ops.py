"""Checkpoints: Save and Restore of formats V1 and V2, and the names of their files.

The formats are in `aexec/io`: `tensor_bundle.py` (V2) and `checkpoint_v1.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from aexec.framework import errors, progress
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.shape import shape_text
from aexec.framework.waiting.abandoned_calls import finishing
from aexec.io.checkpoint_v1 import CheckpointV1Reader, CheckpointV1Writer
from aexec.io.files import text_path
from aexec.io.tensor_bundle import BundleReader, BundleWriter, index_path, merge_bundles
from aexec.io.tensor_slice import TensorSlice, parse_shape_and_slice
from aexec.kernels.common.files import blocking, scalar_of
from aexec.kernels.common.strings import elements_of

# Format V2


@kernel("SaveV2", cost=blocking)
def save_v2(c: OpKernelConstruction) -> Compute:
    types = c.attr("dtypes")

    def compute(prefix: Any, names: Any, specs: Any, *tensors: Any) -> None:
        path = _check_inputs(prefix, names, specs, len(types))
        with BundleWriter(path) as writer:
            for name, spec, tensor, dtype in zip(names.tolist(), _texts(specs), tensors, types, strict=True):
                array = np.asarray(tensor)
                if not spec:
                    writer.add(name, array, dtype)
                    continue
                shape, box = _slice_to_save(spec, array)
                writer.add_slice(name, shape, box, array, dtype)

    return compute


@kernel("RestoreV2", cost=blocking)
def restore_v2(c: OpKernelConstruction) -> Compute:
    """Reads checkpoints of either format."""
    types = c.attr("dtypes")

    def compute(prefix: Any, names: Any, specs: Any) -> Any:
        path = _check_inputs(prefix, names, specs, len(types))
        wanted = list(zip([_text(n) for n in names.tolist()], _texts(specs), types, strict=True))
        if not os.path.exists(index_path(path)):
            reader = CheckpointV1Reader(path)
            return tuple(_restore_v1(reader, *entry) for entry in wanted)
        with BundleReader(path) as bundle:
            _check_types(bundle, wanted)
            with progress.of(
                f"restoring {os.path.basename(path)}",
                lambda: sum(_size_in_bundle(bundle, *entry[:2]) for entry in wanted),
                "B",
            ) as bundle.on_read:
                return tuple(_restore_from_bundle(bundle, name, spec) for name, spec, _ in wanted)

    return compute


def _check_inputs(prefix: Any, names: Any, specs: Any, count: int) -> str:
    if prefix.size != 1:
        raise errors.InvalidArgumentError(f"Input prefix should have a single element, got {prefix.size} instead.")
    if names.ndim != 1 or specs.ndim != 1:
        raise errors.InvalidArgumentError(
            "Input tensor_names and shape_and_slices should be an 1-D tensors, got "
            f"{shape_text(names.shape)} and {shape_text(specs.shape)} instead."
        )
    if names.size != specs.size:
        raise errors.InvalidArgumentError(
            f"tensor_names and shape_and_slices have different number of elements: {names.size} vs. {specs.size}"
        )
    if names.size != count:
        raise errors.InvalidArgumentError(f"Got {names.size} tensor names but {count} tensors.")
    return text_path(prefix.item())


def _check_types(bundle: BundleReader, wanted: Sequence[tuple[str, str, DType]]) -> None:
    complaints = []
    for name, _, dtype in sorted(wanted, key=lambda entry: entry[0]):
        stored, _ = bundle.dtype_and_shape(name)
        if stored is not dtype:
            complaints.append(f"tensor_name = {name}; expected dtype {dtype} does not equal original dtype {stored}")
    if complaints:
        raise errors.InvalidArgumentError("\n".join(complaints))


def _size_in_bundle(bundle: BundleReader, name: str, spec: str) -> int:
    """The number of bytes that `_restore_from_bundle` reads; 0 if it is to refuse the slice."""
    if not spec:
        return bundle.size(name)
    shape, box = parse_shape_and_slice(spec)
    return bundle.size(name, box) if shape == bundle.dtype_and_shape(name)[1] else 0


def _restore_from_bundle(bundle: BundleReader, name: str, spec: str) -> Any:
    if not spec:
        return bundle.read(name)
    shape, box = parse_shape_and_slice(spec)
    _, stored = bundle.dtype_and_shape(name)
    if shape != stored:
        raise errors.InvalidArgumentError(
            f"tensor_name = {name}; shape in shape_and_slice spec {shape_text(shape)} "
            f"does not match the shape stored in checkpoint: {shape_text(stored)}"
        )
    return bundle.read_slice(name, box)


@kernel("MergeV2Checkpoints", cost=blocking)
def merge_v2_checkpoints(c: OpKernelConstruction) -> Compute:
    delete_old_dirs, allow_missing = c.attr("delete_old_dirs"), c.attr("allow_missing_files")
    c.may_be_abandoned = True  # until it has read which files exist

    def compute(prefixes: Any, destination: Any) -> None:
        if prefixes.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Input checkpoint_prefixes should be an 1-D tensor, got {shape_text(prefixes.shape)} instead."
            )
        if destination.ndim:
            raise errors.InvalidArgumentError(
                f"Input destination_prefix should be a scalar tensor, got {shape_text(destination.shape)} instead."
            )
        target = text_path(destination.item())
        named = dict.fromkeys(elements_of(prefixes))  # each once, even if it is repeated
        sources = [text_path(prefix) for prefix in named]
        with finishing():
            merge_bundles(sources, target, allow_missing=allow_missing)
            if delete_old_dirs:
                for directory in {os.path.dirname(p) for p in sources} - {os.path.dirname(target), ""}:
                    with contextlib.suppress(OSError):  # not empty, or another merge has deleted it
                        os.rmdir(directory)

    return compute


# Format V1


@kernel("Save", cost=blocking)
def save(c: OpKernelConstruction) -> Compute:
    types = c.attr("T")
    c.may_be_abandoned = True  # nothing is written before all tensors were added
    return lambda filename, names, *tensors: _save_v1(types, filename, names, None, tensors)


@kernel("SaveSlices", cost=blocking)
def save_slices(c: OpKernelConstruction) -> Compute:
    types = c.attr("T")
    c.may_be_abandoned = True
    return lambda filename, names, specs, *tensors: _save_v1(types, filename, names, specs, tensors)


def _save_v1(types: Sequence[DType], filename: Any, names: Any, specs: Any, tensors: Sequence[Any]) -> None:
    if filename.size != 1:
        raise errors.InvalidArgumentError(
            f"Input 0 (filename) must be a string scalar; got a tensor of {filename.size}elements"
        )
    fixed = 2 if specs is None else 3
    if names.size != len(types):
        raise errors.InvalidArgumentError(
            f"Expected totally {names.size + fixed} inputs as input #1 (which is a string tensor of saved names) "
            f"contains {names.size} names, but received {len(types) + fixed} inputs"
        )
    if specs is not None and specs.size != len(types):
        raise errors.InvalidArgumentError(
            f"Expected {len(types)} elements for the tensor shapes and slices but got {specs.size}"
        )
    writer = CheckpointV1Writer(filename.item())
    all_specs = [""] * len(types) if specs is None else _texts(specs)
    for name, spec, tensor, dtype in zip(names.reshape(-1).tolist(), all_specs, tensors, types, strict=True):
        array = np.asarray(tensor)
        shape, box = _slice_to_save(spec, array) if spec else (array.shape, None)
        writer.add(_text(name), array, dtype, shape, box)
    with finishing():
        writer.finish()


def _slice_to_save(spec: str, array: Any) -> tuple[tuple[int, ...], TensorSlice]:
    shape, box = parse_shape_and_slice(spec)
    if box.shape(shape) != array.shape:
        raise errors.InvalidArgumentError(
            "Slice in shape_and_slice specification does not match the shape of the tensor to  save: "
            f"{spec}, tensor: {shape_text(array.shape)}"
        )
    return shape, box


@kernel("Restore", cost=blocking)
def restore(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("dt")
    return lambda pattern, name: _restore(pattern, name, None, dtype)


@kernel("RestoreSlice", cost=blocking)
def restore_slice(c: OpKernelConstruction) -> Compute:
    dtype = c.attr("dt")
    return lambda pattern, name, spec: _restore(pattern, name, spec, dtype)


def _restore(pattern: Any, name: Any, spec: Any, dtype: DType) -> Any:
    for position, (what, tensor) in enumerate(
        (("file_pattern", pattern), ("tensor_name", name), ("shape_and_slice", spec))
    ):
        if tensor is not None and tensor.size != 1:
            raise errors.InvalidArgumentError(
                f"Input {position} ({what}) must be a string scalar; got a tensor of {tensor.size} elements"
            )
    reader = CheckpointV1Reader(pattern.item())
    return _restore_v1(reader, _text(name.item()), "" if spec is None else _text(spec.item()), dtype)


def _restore_v1(reader: CheckpointV1Reader, name: str, spec: str, dtype: DType) -> Any:
    stored_type, stored = reader.dtype_and_shape(name)
    if stored_type is not dtype:
        raise errors.InvalidArgumentError(
            f"Expected to restore a tensor of type {dtype}, got a tensor of type {stored_type} instead: "
            f"tensor_name = {name}"
        )
    if not spec:
        return reader.read(name)
    shape, box = parse_shape_and_slice(spec)
    if shape != stored:
        raise errors.InvalidArgumentError(
            "Shape in shape_and_slice spec does not match the shape in the save file: "
            f"{shape_text(shape)}, save file shape: {shape_text(stored)}"
        )
    return reader.read(name, box)


def _text(value: bytes) -> str:
    return value.decode(errors="surrogateescape")


def _texts(strings: Any) -> list[str]:
    return [_text(s) for s in strings.reshape(-1).tolist()]


# Names of files


@kernel("ShardedFilename", cost=0)
def sharded_filename(c: OpKernelConstruction) -> Compute:
    def compute(basename: Any, shard: Any, num_shards: Any) -> Any:
        name = scalar_of(basename, "basename must be a scalar, got shape")
        number = scalar_of(shard, "shard must be a scalar, got shape")
        count = scalar_of(num_shards, "num_shards must be a scalar, got shape")
        return np.array(b"%s-%05d-of-%05d" % (name, number, count), object)

    return compute


@kernel("ShardedFilespec", cost=0)
def sharded_filespec(c: OpKernelConstruction) -> Compute:
    def compute(basename: Any, num_shards: Any) -> Any:
        name = scalar_of(basename, "basename must be a scalar, got shape")
        count = scalar_of(num_shards, "num_shards must be a scalar, got shape")
        return np.array(b"%s-?????-of-%05d" % (name, count), object)

    return compute
