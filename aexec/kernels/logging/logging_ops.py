"""Kernels that print messages: Assert, Print, PrintV2; and Timestamp.

Next to read: `aexec/kernels/common/printing.py`, which formats the tensors.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.framework.printed import LOG_LEVELS
from aexec.framework.shape import shape_text
from aexec.framework.waiting.inline_call import check_inline
from aexec.kernels.common.printing import encoded, head_text, text_ns

__all__: list[str] = []


@kernel("Assert", device="DEFAULT", host_memory=("condition", "data"), cost=0)
def assert_(c: OpKernelConstruction) -> Compute:
    """Raises with the first elements of `data` if the condition is false."""
    summarize = c.attr("summarize")
    c.may_be_abandoned = True  # it changes nothing

    def compute(condition: Any, *data: Any) -> None:
        if condition.ndim:
            raise errors.InvalidArgumentError(f"In[0] should be a scalar: {shape_text(condition.shape)}")
        if condition:
            return
        check_inline(text_ns(data, summarize))
        shown = " ".join(f"[{head_text(d, summarize)}]" for d in data)
        raise errors.InvalidArgumentError("assertion failed: " + encoded(shown).decode("utf-8", "replace"))

    return compute


@kernel("Print", cost=0)
def print_(c: OpKernelConstruction) -> Compute:
    """Writes the data to stderr, in the first `first_n` calls unless that is negative; returns its input."""
    message, first_n, summarize = c.text("message"), c.attr("first_n"), c.attr("summarize")
    c.may_be_abandoned = True  # nothing is written before the whole text was made
    calls = itertools.count()
    c.need_context()

    def compute(context: OpKernelContext, x: Any, *data: Any) -> Any:
        check_inline(text_ns(data, summarize))
        if first_n < 0 or next(calls) < first_n:
            line = message + "".join(f"[{head_text(d, summarize)}]" for d in data) + "\n"
            context.print_text("stderr", encoded(line).decode("utf-8", "replace"))
        return x

    return compute


_STREAMS = ("stdout", "stderr", *LOG_LEVELS)


def _writer(stream: str) -> Callable[[OpKernelContext, bytes], Any]:
    """The function that writes to the stream that the attr output_stream names."""
    if stream in _STREAMS:
        return lambda context, text: context.print_text(stream, text.decode("utf-8", "replace"))
    if stream.startswith("file://"):
        path = Path(stream.removeprefix("file://"))
        return lambda _, text: _append(path, text)
    raise errors.InvalidArgumentError(
        f"Unknown output stream: {stream}, must be one of {', '.join(_STREAMS)} or file://<filename>"
    )


def _append(path: Path, text: bytes) -> None:
    try:
        with path.open("ab") as file:
            file.write(text)
    except OSError as e:
        raise errors.NotFoundError(f"{path}; {e.strerror}") from e


@kernel("PrintV2", cost=0)
def print_v2(c: OpKernelConstruction) -> Compute:
    """Writes a string scalar and the attr `end` to stderr, stdout, a file, or the log `aexec`."""
    write, end = _writer(c.text("output_stream")), c.attr("end")
    c.need_context()

    def compute(context: OpKernelContext, x: Any) -> None:
        if x.ndim:
            raise errors.InvalidArgumentError(f"Input is expected to be scalar, but got {shape_text(x.shape)}")
        write(context, x.item() + end)

    return compute


@kernel("Timestamp", cost=0)
def timestamp(c: OpKernelConstruction) -> Compute:
    """Return seconds since 1970, as a double."""
    return lambda: np.float64(time.time())
