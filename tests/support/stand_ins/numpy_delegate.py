"""A delegate for tests: it runs regions with aexec's own kernels, under the control of the test.

delegate = NumpyDelegate()              # registered as "numpy" by the fixture of that name
step = session.start(...)
await until(delegate.inferring.entered.is_set)
delegate.inferring.open.set()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from aexec.delegates.delegate import RefusedError
from aexec.delegates.delegate_registry import register_delegate, unregister_delegate
from aexec.framework.kernel_contract.kernel_registry import global_registry
from aexec.framework.kernel_contract.op_kernel import OpKernelConstruction
from aexec.graph.nodes.node import Endpoint, Node
from aexec.graph.partitioning.regions import Region
from aexec.graph.passes.working_graph import WorkingGraph
from tests.support.time_limit import LIMIT


class Passage:
    """A point at which a thread announces itself, and waits unless the passage is open."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self.count = 0

    def close(self) -> None:
        self.open.clear()

    def go_through(self) -> None:
        self.count += 1
        self.entered.set()
        assert self.open.wait(LIMIT), "nobody opened the passage"


class NumpyDelegate:
    """Supports the ops `ops`; refuses to compile if `refusal` gives a reason; fails while `failure` is set.

    Attributes:
        regions: the compiled regions.
        on_call: called in the thread of each call.
        cancelled: calls that were cancelled.
        ended: calls that have ended, cancelled or not.
    """

    name = "numpy"
    device_type = "CPU"

    def __init__(self, ops: Collection[str] = ("Add", "AddV2", "Mul", "Sub", "Split", "Neg", "Exp", "Reshape")) -> None:
        self.ops = ops
        self.compiling = Passage()
        self.inferring = Passage()
        self.regions: list[Region] = []
        self.threads: list[int] = []
        self.refuses = ""
        self.failure: Exception | None = None
        self.shapes_refused: set[tuple[int, ...]] = set()
        self.seconds = 0.0
        self.on_call: Callable[[], object] = lambda: None
        self.cancelled = 0
        self.ended = 0

    def refusal(self, graph: WorkingGraph, node: Node, used: Collection[int]) -> str:
        return "" if node.op in self.ops else f"{node.op} is unknown"

    def compile_seconds(self, region: Region) -> float:
        return self.seconds

    def compile(self, region: Region, threads: int) -> _Compiled:
        self.compiling.go_through()
        if self.refuses:
            raise RefusedError(self.refuses)
        self.regions.append(region)
        self.threads.append(threads)
        return _Compiled(self, region)


@contextmanager
def numpy_delegate() -> Iterator[NumpyDelegate]:
    """Fixture: a registered delegate; at the end no thread waits in it."""
    made = NumpyDelegate()
    register_delegate("numpy", lambda: made)
    try:
        yield made
    finally:
        made.compiling.open.set()
        made.inferring.open.set()
        unregister_delegate("numpy")


class _Compiled:
    memory = 0

    def __init__(self, delegate: NumpyDelegate, region: Region) -> None:
        self.delegate = delegate
        self.region = region
        self.constants = {(node.id, 0): node.attrs["value"].array for node in region.constants}
        self.kernels = [(node, _kernel(node)) for node in region.nodes]

    def start(self, inputs: Sequence[Any]) -> _Inference:
        for array in inputs:
            assert type(array) is np.ndarray and array.flags.c_contiguous
            if array.shape in self.delegate.shapes_refused:
                raise RefusedError(f"no inputs of shape {array.shape}")
        return _Inference(self, inputs)


class _Inference:
    def __init__(self, compiled: _Compiled, inputs: Sequence[Any]) -> None:
        self.compiled = compiled
        self.inputs = inputs

    def wait(self) -> list[Any]:
        delegate, region = self.compiled.delegate, self.compiled.region
        delegate.inferring.go_through()
        delegate.on_call()
        delegate.ended += 1
        if delegate.failure is not None:
            raise delegate.failure
        values: dict[Endpoint, Any] = {**self.compiled.constants, **dict(zip(region.inputs, self.inputs, strict=True))}
        for node, kernel in self.compiled.kernels:
            out = kernel(*[values[endpoint] for endpoint in node.inputs])
            for slot, value in enumerate(out if type(out) is tuple else (out,)):
                values[node.id, slot] = value
        return [values[endpoint] for endpoint in region.outputs]

    def cancel(self) -> None:
        self.compiled.delegate.cancelled += 1


def _kernel(node: Node) -> Any:
    construction = OpKernelConstruction(
        name=node.name,
        op_def=node.op_def,
        attrs=node.attrs,
        input_types=node.input_types,
        output_types=node.output_types,
    )
    return global_registry.lookup(node.op, "CPU", node.attrs, node=node.name).build(construction).compute
