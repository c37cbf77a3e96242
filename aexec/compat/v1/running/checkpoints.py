"""`tf.train`'s functions that read a checkpoint, over `aexec/io/tensor_bundle.py`.

Next to read: `training.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aexec import ops
from aexec.compat.v1.values.tensors import get_default_graph
from aexec.framework import errors
from aexec.framework.dtypes import DType
from aexec.io.tensor_bundle import BundleReader
from aexec.training.checkpoint_state import read_state

__all__ = [
    "NewCheckpointReader",
    "init_from_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
]


class NewCheckpointReader:
    """`tf.train.NewCheckpointReader`: reads the checkpoint of a prefix."""

    def __init__(self, filepattern: str) -> None:
        self._bundle = BundleReader(filepattern)
        self._described = {name: self._bundle.dtype_and_shape(name) for name in self._bundle.keys()}  # noqa: SIM118

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Name → shape of each tensor."""
        return {name: list(shape) for name, (_, shape) in self._described.items()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """Name → dtype of each tensor."""
        return {name: dtype for name, (dtype, _) in self._described.items()}

    def debug_string(self) -> bytes:
        """A line per tensor: name, dtype, shape."""
        lines = [
            f"{name} ({dtype.enum_name}) [{','.join(map(str, shape))}]\n"
            for name, (dtype, shape) in self._described.items()
        ]
        return "".join(lines).encode()

    def has_tensor(self, tensor_str: str) -> bool:
        """True if there is a tensor of that name."""
        return tensor_str in self._described

    def get_tensor(self, tensor_str: str) -> Any:
        """The value of a tensor, an array.  Raises NotFoundError if the checkpoint has none of that name."""
        with self._bundle:  # it opens its files when it reads
            return self._bundle.read(tensor_str)


def load_checkpoint(ckpt_dir_or_file: str) -> NewCheckpointReader:
    """`tf.train.load_checkpoint`: a reader of the checkpoint of a prefix, or of a folder's latest.

    Raises:
        NotFoundError: there is no checkpoint.
    """
    return NewCheckpointReader(_prefix(ckpt_dir_or_file))


def _prefix(ckpt_dir_or_file: str) -> str:
    state = read_state(ckpt_dir_or_file, "checkpoint")
    return ckpt_dir_or_file if state is None else state.latest


def list_variables(ckpt_dir_or_file: str) -> list[tuple[str, list[int]]]:
    """`tf.train.list_variables`: names and shapes, sorted by name."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file: str, name: str) -> Any:
    """`tf.train.load_variable`: the value of a variable, an array.  Raises NotFoundError if there is none."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name)


def init_from_checkpoint(ckpt_dir_or_file: str, assignment_map: Any) -> None:
    """`tf.train.init_from_checkpoint`: make the initializers of variables restore values from a checkpoint.

    Call it before creating an operation that groups the initializers.

    Args:
        ckpt_dir_or_file: prefix of a checkpoint, or a folder.
        assignment_map: name in the checkpoint → variable or its name; or `scope/` → `scope/`, for all names inside.

    Raises:
        ValueError: a variable or a tensor does not exist, or their shapes differ.
    """
    prefix = _prefix(ckpt_dir_or_file)
    reader = NewCheckpointReader(prefix)
    shapes = reader.get_variable_to_shape_map()
    pairs = assignment_map.items() if isinstance(assignment_map, Mapping) else assignment_map
    for name, variable in (pair for theirs, ours in pairs for pair in _matched(theirs, ours, shapes)):
        if name not in shapes:
            raise errors.InvalidValueError(f"Tensor {name} is not found in {ckpt_dir_or_file} checkpoint {shapes}")
        if not variable.static_shape.is_compatible_with(shapes[name]):
            raise errors.InvalidValueError(
                f"Shape of variable {variable.name} ({variable.static_shape}) doesn't match with shape of tensor "
                f"{name} ({shapes[name]}) from checkpoint reader."
            )
        variable.begin_with(ops.restore_v2(prefix, [name], [""], dtypes=[variable.dtype])[0])


def _matched(theirs: str, ours: Any, shapes: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Expand an entry of an assignment map to pairs of a name in the checkpoint and a variable.

    Raises:
        ValueError: the graph has no variable of that name.
    """
    variables = {v.op.name: v for v in get_default_graph().collections.get("variables")}
    if not isinstance(ours, str):
        yield from ((theirs, one) for one in (ours if isinstance(ours, list) else [ours]))
    elif theirs.endswith("/"):
        inside, prefix = ours.removesuffix("/"), theirs.removesuffix("/")
        for name, variable in variables.items():
            if not inside or name.startswith(f"{inside}/"):
                rest = name[len(inside) :].lstrip("/")
                yield f"{prefix}/{rest}".lstrip("/"), variable
    elif ours in variables:
        yield theirs, variables[ours]
    else:
        raise errors.InvalidValueError(f"variable {ours} is not found in the graph")
