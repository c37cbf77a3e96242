"""A stand-in for CuPy's ElementwiseKernel: the code that it would compile for a GPU, compiled for the host.

`compile_kernels` compiles many kernels to one library, because a call of the compiler takes longer than all of them. It
checks what the statements compute, not whether they use features that only CUDA has.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.support.stand_ins.strict_arrays import StrictArray

__all__ = ["COMPILER", "HostKernel", "Recorder", "compile_kernels"]

COMPILER = shutil.which("c++")
_TYPES = {"float16": "_Float16", "float32": "float", "float64": "double"}
_HEAD = """
#include <cmath>
using namespace std;
typedef _Float16 float16; typedef float float32; typedef double float64; typedef long long int64;
"""


@dataclass
class HostKernel:
    """A kernel as CuPy is asked for it; once compiled, it is called with arrays of `strict` and scalars."""

    inputs: list[list[str]]
    outputs: list[list[str]]
    operation: str
    name: str
    function: Any = None

    def source(self, number: int) -> str:
        """Return the source of a function of the size and of the addresses of arrays."""
        arrays = [*self.inputs, *self.outputs]
        parameters = "".join(f", {each[-2]}* {each[-1]}{'' if each[0] == 'raw' else '_'}" for each in arrays)
        elements = " ".join(f"{each[0]}& {each[1]} = {each[1]}_[i];" for each in arrays if each[0] != "raw")
        loop = f"for (long i = 0; i < n; ++i) {{ {elements} {self.operation} }}"
        return f'extern "C" void f{number}(long n{parameters}) {{ {loop} }}\n'

    def __call__(self, *arguments: Any) -> Any:
        if self.inputs[0][0] == "raw":
            return self._with_whole_arrays(*arguments)
        assert len(arguments) == len(self.inputs)
        given = [x._host if isinstance(x, StrictArray) else np.asarray(x) for x in arguments]
        for x, (dtype, name) in zip(given, self.inputs, strict=True):
            assert x.dtype == dtype, f"{self.name}: {name} is {x.dtype}"
        given = [np.ascontiguousarray(x) for x in np.broadcast_arrays(*given)]
        made = [np.empty(given[0].shape, dtype) for dtype, _ in self.outputs]
        self.function(ctypes.c_long(given[0].size), *(x.ctypes.data_as(ctypes.c_void_p) for x in (*given, *made)))
        results = tuple(map(StrictArray, made))
        return results if len(results) > 1 else results[0]

    def _with_whole_arrays(self, *arguments: Any) -> Any:
        """Call with whole arrays: the code indexes inputs that are `raw`; the output comes last, and the rest are
        numbers.
        """
        *given, out = arguments
        assert len(given) == len(self.inputs)
        size, arrays = out.size, []
        for x, (*raw, dtype, _) in zip(given, self.inputs, strict=True):
            whole = np.ascontiguousarray(x._host) if raw else np.full(size, x, dtype)
            assert whole.dtype == dtype
            arrays.append(whole)
        made = np.empty(out.shape, self.outputs[0][0])
        self.function(ctypes.c_long(size), *(x.ctypes.data_as(ctypes.c_void_p) for x in (*arrays, made)))
        out._host[...] = made
        return out


class Recorder:
    """Records the ElementwiseKernels that are asked for; `module` stands for a module that has that class."""

    def __init__(self, module: Any) -> None:
        self.kernels: list[HostKernel] = []
        self.module = SimpleNamespace(**vars(module), ElementwiseKernel=self._make)

    def _make(self, inputs: str, outputs: str, operation: str, name: str) -> HostKernel:
        parsed = ([each.split() for each in text.split(", ")] for text in (inputs, outputs))
        self.kernels.append(HostKernel(*parsed, operation, name))
        return self.kernels[-1]


def compile_kernels(kernels: Sequence[HostKernel], folder: Path) -> None:
    """Compile the kernels, and give each its function."""
    assert COMPILER is not None
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text(_HEAD + "".join(kernel.source(i) for i, kernel in enumerate(kernels)))
    subprocess.run([COMPILER, "-O0", "-shared", "-fPIC", "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))
    for i, kernel in enumerate(kernels):
        kernel.function = getattr(loaded, f"f{i}")
        kernel.function.restype = None
