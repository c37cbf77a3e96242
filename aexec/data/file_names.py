"""`FileNames`: datasets of file names, and the handling of file names that all readers share."""

from __future__ import annotations

from typing import Any, Self

from aexec import ops
from aexec.client.building import control_dependencies
from aexec.control_flow.function import TensorSpec
from aexec.data.dataset_base import building
from aexec.data.mixing import Mixing
from aexec.framework import dtypes, errors
from aexec.framework.shape import PartialTensorShape
from aexec.graph.op_functions import convert_to_tensor, create_node

__all__ = ["FileNames", "filenames_of"]


class FileNames(Mixing):
    """The methods that create datasets of file names."""

    @classmethod
    def list_files(
        cls, file_pattern: Any, shuffle: bool | None = None, seed: Any = None, name: str | None = None
    ) -> Self:
        """The names of the files that match a pattern, or one of several; a run fails if there are none.

        Args:
            shuffle: True, the default, for random order; False for the order of names.
            seed: as in `Dataset.shuffle`.
        """
        with building():
            patterns = convert_to_tensor(file_pattern, dtypes.string, "file_pattern")
            matching = ops.matching_files(patterns)
            number = ops.size(matching, out_type=dtypes.int64)
            given = ops.reduce_join(ops.reshape(patterns, [-1]), [0], separator=", ")
            inputs = {
                "condition": ops.greater(number, 0),
                "data": [ops.string_join(["No files matched pattern: ", given])],
            }
            check = create_node("Assert", inputs, {"summarize": 1})
            with control_dependencies([check]):
                matching = ops.identity(matching)
            spec = TensorSpec(PartialTensorShape([]), dtypes.string)
            names = cls.made("TensorSliceDataset", {"components": [matching]}, spec, name=name)
            if shuffle is False:
                return names
            return names.shuffle(ops.maximum(number, 1), seed=seed)


def filenames_of(dataset_class: type[Any], filenames: Any) -> Any:
    """Convert a name, a tensor of names or a dataset of names to a dataset of names.

    Raises:
        InvalidArgumentError: the argument is none of these.
    """
    if isinstance(filenames, dataset_class):
        leaf = filenames.spec_here
        if not (isinstance(leaf, TensorSpec) and leaf.dtype is dtypes.string and leaf.shape.rank in (None, 0)):
            raise errors.InvalidTypeError(f"The dataset of filenames must have string scalars, and has {leaf!r}")
        return filenames
    names = convert_to_tensor(filenames, dtypes.string, "filenames")
    return dataset_class.from_tensor_slices(ops.reshape(names, [-1], name="flat_filenames"))
