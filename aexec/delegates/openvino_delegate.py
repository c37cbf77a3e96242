"""OpenVINO as a delegate: its TensorFlow frontend reads a region, its CPU plugin compiles and runs it.

A region is passed as a GraphDef in a private file, which is deleted once it was read: OpenVINO reads a path without the
interpreter's lock.  A call shares its input arrays, and its outputs are memory of its own.  OpenVINO reports only
success to a callback, so a thread waits for the end.
Next to read: `openvino_ops.py`, which nodes are passed to it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aexec.delegates.delegate import CompiledRegion, Inference, RefusedError
from aexec.delegates.openvino_ops import refusal
from aexec.delegates.region_graph import input_name, member_of, output_name, region_graph
from aexec.framework.waiting.loop_budget import let_others_run
from aexec.graph.nodes.node import Node
from aexec.graph.partitioning.regions import Region
from aexec.graph.passes.working_graph import WorkingGraph

__all__ = ["OpenVinoDelegate"]

# Estimate of compiling, in seconds: at least, per node, and per byte of the constants.
_COMPILE_SECONDS, _NODE_SECONDS, _BYTE_SECONDS = 0.1, 2e-3, 7e-9
# Larger regions are refused: compiling time grows faster than their size, cannot be cancelled, and `close` waits for
# it.
_MAX_NODES = 4000
# Copies of the constants' bytes, approximately: weights are stored in the layout of their kernels.
_COPIES = 1.0


class OpenVinoDelegate:
    """The delegate that compiles regions with OpenVINO and runs them on its CPU plugin."""

    name = "openvino"
    device_type = "CPU"

    def __init__(self) -> None:
        self._core: Any = None
        self._lock = threading.Lock()

    def refusal(self, graph: WorkingGraph, node: Node, used: Collection[int]) -> str:
        """Why it cannot run a node: see `openvino_ops.py`."""
        return refusal(graph, node, used)

    def compile_seconds(self, region: Region) -> float:
        return _COMPILE_SECONDS + _NODE_SECONDS * len(region.nodes) + _BYTE_SECONDS * region.constant_bytes

    def compile(self, region: Region, threads: int) -> CompiledRegion:
        if len(region.nodes) > _MAX_NODES:
            raise RefusedError(f"{len(region.nodes)} nodes are more than {_MAX_NODES}")
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,
        }
        try:
            with self._lock:  # one at a time: several are not faster, and need more memory
                compiled = self._library().compile_model(self._read(region), "CPU", settings)
            return _CompiledRegion(compiled, region)
        except RuntimeError as error:
            node = member_of(region, str(error))
            of = "" if node is None else f"node '{node.name}' ({node.op}): "
            raise RefusedError(f"{of}{_reason(error)}") from None

    def _library(self) -> Any:
        """OpenVINO's core.  OpenVINO is imported when the first region is compiled, since that takes long."""
        if self._core is None:
            import openvino

            self._core = openvino.Core()
        return self._core

    def _read(self, region: Region) -> Any:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="aexec-") as folder:
            path = Path(folder, "region.pb")
            with path.open("wb") as file:
                for piece in region_graph(region):
                    file.write(piece)
                    let_others_run()
            return self._library().read_model(path)


class _CompiledRegion:
    def __init__(self, compiled: Any, region: Region) -> None:
        from openvino import Tensor

        self._tensor = Tensor
        self._compiled = compiled
        self._dims = [shape.dims for shape in region.input_shapes]
        self._types = [dtype.np for dtype in region.input_types]
        self._inputs = _ports(compiled.inputs, [input_name(k) for k in range(len(region.inputs))])
        self._outputs = [
            (index, compiled.outputs[index].get_element_type(), _start_shape(compiled.outputs[index]))
            for index in _ports(compiled.outputs, [output_name(k) for k in range(len(region.outputs))])
        ]
        self.memory = int(_COPIES * region.constant_bytes)
        for (_, element_type, _), dtype in zip(self._outputs, region.output_types, strict=True):
            if element_type.to_dtype() != dtype.np:
                raise RefusedError(f"an output of type {element_type.get_type_name()}, expected {dtype}")
        compiled.create_infer_request()  # the first request takes long

    def start(self, inputs: Sequence[Any]) -> Inference:
        """Start a call.  Raises RefusedError for shapes other than those it was compiled for, and empty arrays."""
        request = self._compiled.create_infer_request()
        tensor = self._tensor
        for index, array, dims, dtype in zip(self._inputs, inputs, self._dims, self._types, strict=True):
            if not array.size or array.dtype != dtype or not _fits(array.shape, dims):
                raise RefusedError(f"an input of type {array.dtype} and shape {array.shape}, expected {dims}")
            request.set_input_tensor(index, tensor(_writeable(array), shared_memory=True))
        for index, element_type, shape in self._outputs:
            request.set_output_tensor(index, tensor(element_type, shape))
        request.start_async()
        return _Inference(request, inputs, [index for index, _, _ in self._outputs])


class _Inference:
    def __init__(self, request: Any, inputs: Sequence[Any], outputs: Sequence[int]) -> None:
        self._request = request
        self._kept = inputs
        self._outputs = outputs

    def wait(self) -> Sequence[Any]:
        """The outputs, each of which keeps its own memory."""
        self._request.wait()
        arrays: dict[int, Any] = {}
        outputs = []
        for index in self._outputs:
            # Outputs that are always equal may be one tensor there.
            again = index in arrays
            array = arrays.setdefault(index, self._request.get_output_tensor(index).data)
            outputs.append(array.copy() if again else array)
        return outputs

    def cancel(self) -> None:
        """Stop before the next layer."""
        self._request.cancel()


class _Shared:
    """The memory of a read-only array, for a library that does not write to it but requires a writable one."""

    def __init__(self, array: Any) -> None:
        self._array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def _writeable(array: Any) -> Any:
    return array if array.flags.writeable else np.asarray(_Shared(array))


def _fits(shape: tuple[int, ...], dims: tuple[int | None, ...] | None) -> bool:
    return (
        dims is not None and len(shape) == len(dims) and all(d in (None, n) for n, d in zip(shape, dims, strict=True))
    )


def _ports(ports: Sequence[Any], names: Sequence[str]) -> list[int]:
    """The positions of the ports of these nodes.  Raises RefusedError if one is missing."""
    found = {name.partition(":")[0]: index for index, port in enumerate(ports) for name in port.get_names()}
    missing = [name for name in names if name not in found]
    if missing:
        raise RefusedError(f"no port for {missing[0]}")
    return [found[name] for name in names]


def _start_shape(port: Any) -> list[int]:
    """The shape for which an output's memory is allocated: its own, or an empty one if unknown, which then grows."""
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        raise RefusedError("an output of unknown rank")
    return [0 if dim.is_dynamic else dim.get_length() for dim in shape] if shape.is_dynamic else list(shape.to_shape())


def _reason(error: BaseException) -> str:
    """OpenVINO's message without places in its source and advice."""
    lines = [line.strip() for line in str(error).splitlines()]
    noise = ("Exception from", "Check '", "Summary", "FrontEnd API failed", "Model wasn't fully converted", "To facil")
    return " ".join(line for line in lines if line and not line.startswith(noise))[:300] or str(error)
