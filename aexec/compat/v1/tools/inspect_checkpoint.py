"""`print_tensors_in_checkpoint_file`: prints the tensors of a checkpoint in TensorFlow's format.

Next to read: `aexec/compat/v1/running/checkpoints.py`.
"""

from __future__ import annotations

import math
import re
from typing import Any

from aexec.compat.v1.running.checkpoints import load_checkpoint
from aexec.framework import errors

__all__ = ["print_tensors_in_checkpoint_file"]


def print_tensors_in_checkpoint_file(
    file_name: str,
    tensor_name: str | None,
    all_tensors: bool,
    all_tensor_names: bool = False,
    count_exclude_pattern: str = "",
) -> None:
    """Print names, dtypes and shapes of a checkpoint's tensors, with or without values, and the parameter count.

    Errors are printed, not raised, as in TensorFlow.

    Args:
        file_name: prefix of the checkpoint, or a folder.
        tensor_name: print only this tensor, with its value; if empty, print a line per tensor.
        all_tensors: print all tensors, sorted, with their values.
        all_tensor_names: print all tensors, sorted, without values.
        count_exclude_pattern: regex; tensors whose name it matches are not counted as parameters.
    """
    try:
        reader = load_checkpoint(file_name)
        if all_tensors or all_tensor_names:
            for name in sorted(reader.get_variable_to_shape_map()):
                _print_tensor(reader, name, with_value=all_tensors)
        elif not tensor_name:
            print(reader.debug_string().decode(errors="ignore"))
        elif reader.has_tensor(tensor_name):
            _print_tensor(reader, tensor_name, with_value=True)
        else:
            print(f"Tensor {tensor_name} not found in checkpoint")
            return
        _print_count(reader, count_exclude_pattern)
    except errors.OpError as error:
        print(error)


def _print_tensor(reader: Any, name: str, *, with_value: bool) -> None:
    dtype, shape = reader.get_variable_to_dtype_map()[name], reader.get_variable_to_shape_map()[name]
    print(f"tensor: {name} ({dtype.name}) {shape}")
    if with_value:
        print(reader.get_tensor(name))


def _print_count(reader: Any, exclude: str) -> None:
    sizes = {name: math.prod(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    left_out = [size for name, size in sizes.items() if exclude and re.search(exclude, name)]
    if left_out:
        print(f"# Excluding {len(left_out)} tensors ({sum(left_out)} params) that match {exclude} when counting.")
    print(f"# Total number of params: {sum(sizes.values()) - sum(left_out)}")
