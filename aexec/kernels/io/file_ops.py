"""Whole files: ReadFile, WriteFile, MatchingFiles."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.memory.allocator import Growth
from aexec.framework.memory.tensor_buffer import STRING_BYTES
from aexec.framework.shape import shape_text
from aexec.framework.waiting.loop_budget import giving_way
from aexec.io.files import make_directories, read_file, reporting, text_path
from aexec.io.matching import matching_files
from aexec.kernels.common.files import blocking, scalar_of

# Nanoseconds that looking for the files of a pattern takes, at least.
_PATTERN_NS = 10_000.0


@kernel("ReadFile", cost=blocking)
def whole_file(c: OpKernelConstruction) -> Compute:
    def compute(filename: Any) -> Any:
        path = text_path(scalar_of(filename, "Input filename tensor must be scalar, but had shape:"))
        return np.array(read_file(path), object)

    return compute


@kernel("WriteFile", cost=blocking)
def write_file(c: OpKernelConstruction) -> Compute:
    """Writes a file; missing directories are created."""

    def compute(filename: Any, contents: Any) -> None:
        path = text_path(scalar_of(filename, "Input filename tensor must be scalar, but had shape:"))
        data = scalar_of(contents, "Contents tensor must be scalar, but had shape:")
        if os.path.dirname(path):
            make_directories(os.path.dirname(path))
        with reporting(path), open(path, "wb") as file:
            file.write(data)

    return compute


@kernel("MatchingFiles", cost=blocking, scratch=32)
def match_files(c: OpKernelConstruction) -> Compute:
    """Return the sorted names of the files that match any of the patterns."""

    def compute(pattern: Any) -> Any:
        if pattern.ndim > 1:
            raise errors.InvalidArgumentError(
                f"Input patterns tensor must be scalar or vector, but had shape: {shape_text(pattern.shape)}"
            )
        found, growth = list[bytes](), Growth()
        for text in giving_way(map(text_path, pattern.reshape(-1).tolist()), _PATTERN_NS):
            with reporting(text):
                for name in map(os.fsencode, matching_files(text)):
                    growth.add(len(name) + STRING_BYTES)
                    found.append(name)
        return np.fromiter(sorted(found), object, len(found))

    return compute
