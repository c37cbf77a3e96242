"""What is in a checkpoint, with TensorFlow's functions, over `aexec/io/tensor_bundle.py`.

Next to read: `training.py`.
"""

from __future__ import annotations

from typing import Any

from aexec.framework.dtypes import DType
from aexec.io.tensor_bundle import BundleReader
from aexec.training.checkpoint_state import read_state

__all__ = ["NewCheckpointReader", "list_variables", "load_checkpoint", "load_variable"]


class NewCheckpointReader:
    """`tf.train.NewCheckpointReader`: of a checkpoint's prefix."""

    def __init__(self, filepattern: str) -> None:
        self._bundle = BundleReader(filepattern)
        self._described = {name: self._bundle.dtype_and_shape(name) for name in self._bundle.keys()}  # noqa: SIM118

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Shapes by names."""
        return {name: list(shape) for name, (_, shape) in self._described.items()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """Types by names."""
        return {name: dtype for name, (dtype, _) in self._described.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """Is there one of that name?"""
        return tensor_str in self._described

    def get_tensor(self, tensor_str: str) -> Any:
        """A value.  Raises NotFoundError."""
        with self._bundle:  # which opens its files again when it reads
            return self._bundle.read(tensor_str)


def load_checkpoint(ckpt_dir_or_file: str) -> NewCheckpointReader:
    """`tf.train.load_checkpoint`: a prefix, or a folder, of which the latest is read."""
    state = read_state(ckpt_dir_or_file, "checkpoint")
    return NewCheckpointReader(ckpt_dir_or_file if state is None else state.latest)


def list_variables(ckpt_dir_or_file: str) -> list[tuple[str, list[int]]]:
    """`tf.train.list_variables`: names and shapes, by name."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file: str, name: str) -> Any:
    """`tf.train.load_variable`: a value."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name)
