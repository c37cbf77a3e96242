"""A sample of the calls that conformance cases and kernel tests make to kernels: for tests that repeat them.

`data/kernel_calls.pb.gz` is a GraphDef with a node per call, the inputs in its attr `_inputs`.
`python -m tests.kernels.kernel_calls` makes it anew: a few calls per kernel, small ones, as different as
there are; `python -m tests.kernels.kernel_calls MatMul` only the calls of MatMul, from the tests of its family.
Kernels that need their step, or touch strings, handles or variants, are left out; those that touch strings and need
nothing else are in `data/string_calls.pb.gz`, which `python -m tests.kernels.kernel_calls strings` makes.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aexec import proto
from aexec.framework import dtypes, errors
from aexec.framework.kernel_contract import kernel_registry
from aexec.framework.kernel_contract.kernel_registry import KernelRegistration
from aexec.framework.kernel_contract.op_kernel import BuiltKernel, OpKernelConstruction
from aexec.framework.op_contract import op_registry
from aexec.framework.types import MemoryType
from aexec.framework.wire import attr_value, node_def
from aexec.ops.families import FAMILIES

__all__ = ["KernelCall", "check_alike", "in_host_memory", "load", "load_of_strings", "outputs_of"]

FILE = Path(__file__).parent / "data" / "kernel_calls.pb.gz"
STRINGS_FILE = FILE.with_name("string_calls.pb.gz")
PER_KERNEL = 6
_MOST_ELEMENTS = 2000
# How far numbers may be apart, by the bytes of one.
_TOLERANCE = {2: 1e-2, 4: 1e-4, 8: 1e-4, 16: 1e-9}
# The folders of tests whose kernels touch strings.
_OF_STRINGS = ("string", "parsing", "sparse", "ragged", "logging", "image")


@dataclass(frozen=True)
class KernelCall:
    """One call of a kernel: the node, and what was given to it."""

    node: proto.NodeDef
    inputs: tuple[Any, ...]

    @property
    def op(self) -> str:
        return self.node.op

    def construction(self, xp: Any) -> OpKernelConstruction:
        op_def = op_registry.global_registry.lookup(self.op).op_def
        attrs = node_def.resolve_attrs(op_def, self.node.attr, node=self.node.name)
        return OpKernelConstruction(
            name=self.node.name,
            op_def=op_def,
            attrs=attrs,
            input_types=op_def.input_types(attrs),
            output_types=op_def.output_types(attrs),
            xp=xp,
        )

    def registration(self, construction: OpKernelConstruction) -> KernelRegistration:
        return kernel_registry.global_registry.lookup(self.op, "CPU", construction.attrs, node=self.node.name)

    def of_numpy(self) -> BuiltKernel:
        """The CPU's kernel."""
        c = self.construction(np)
        return self.registration(c).build(c)


def in_host_memory(c: OpKernelConstruction) -> tuple[list[bool], list[bool]]:
    """Of each input and each output of a node, whether it is in host memory."""
    inputs, outputs = (
        [where is MemoryType.HOST_MEMORY for where in memory]
        for memory in (c.input_memory_types, c.output_memory_types)
    )
    return inputs, outputs


def outputs_of(built: BuiltKernel, inputs: Iterable[Any]) -> tuple[Any, ...]:
    """What a kernel gives for these inputs, one value for each output."""
    with np.errstate(all="ignore"):
        made = built.compute(*inputs)
    return made if isinstance(made, tuple) else () if made is None else (made,)


def check_alike(got: Any, want: Any) -> None:
    """What another module of arrays gives is what NumPy does.  Raises AssertionError."""
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), (
        f"another type or shape: {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
    )
    if want.dtype.kind in "biu":
        assert np.array_equal(got, want), f"other values: {got.ravel()[:8]}, not {want.ravel()[:8]}"
        return
    tolerance = _TOLERANCE[want.dtype.itemsize]
    wide = complex if want.dtype.kind == "c" else float
    alike = np.isclose(got.astype(wide), want.astype(wide), tolerance, tolerance, equal_nan=True)
    assert alike.all(), f"other values: {got[~alike][:8]}, not {want[~alike][:8]}"


@cache
def load() -> tuple[KernelCall, ...]:
    """The calls on file, by op."""
    return _read(FILE)


@cache
def load_of_strings() -> tuple[KernelCall, ...]:
    """The calls of kernels that touch strings."""
    return _read(STRINGS_FILE)


def _read(file: Path) -> tuple[KernelCall, ...]:
    graph = proto.GraphDef.FromString(gzip.decompress(file.read_bytes()))
    calls = []
    for node in graph.node:
        inputs = tuple(tensor.array for tensor in attr_value.decode(node.attr.pop("_inputs")) or ())
        for array in inputs:
            array.flags.writeable = False
        calls.append(KernelCall(node, inputs))
    return tuple(calls)


# --- recording


class _Recorder:
    """Calls seen, by kernel and by what they are like: attrs, types and ranks.

    Args:
        strings: of kernels that touch strings, and of no others.
    """

    def __init__(self, *, strings: bool = False) -> None:
        self.seen: dict[tuple[str, str], dict[Any, KernelCall]] = {}
        self._strings = strings

    def watch(self, registration: KernelRegistration, c: OpKernelConstruction, built: BuiltKernel) -> None:
        types = (*c.input_types, *c.output_types)
        plain = c.input_types and all((t.is_simple or t is dtypes.string) and not t.is_ref for t in types)
        if built.is_async or built.wants_context or not plain or (dtypes.string in types) is not self._strings:
            return
        kernel = (c.op, f"{registration.builder.__module__}.{registration.builder.__qualname__}")
        compute, node = built.compute, c.node_def
        node.device = ""

        def recorded(*inputs: Any) -> Any:
            before = [np.array(x) for x in inputs]
            outputs = compute(*inputs)
            # A reference may be given where a value is declared.
            if all((x.dtype == object) is (t is dtypes.string) for x, t in zip(before, c.input_types, strict=True)):
                self.add(kernel, node, before)
            return outputs

        built.compute = recorded

    def add(self, kernel: tuple[str, str], node: proto.NodeDef, inputs: list[Any]) -> None:
        if sum(x.size for x in inputs) > _MOST_ELEMENTS or not all(map(_is_plain, inputs)):
            return
        kinds = self.seen.setdefault(kernel, {})
        attrs = tuple((name, value.SerializeToString(deterministic=True)) for name, value in sorted(node.attr.items()))
        like = (attrs, *[(x.dtype.char, x.ndim, x.size == 0) for x in inputs])
        if like not in kinds:
            kinds[like] = KernelCall(node, tuple(inputs))

    def sample(self) -> Iterator[KernelCall]:
        """Up to `PER_KERNEL` calls of each kernel, each the one that adds most to those before it."""
        for _, kinds in sorted(self.seen.items()):
            left = {like: set(zip(itertools.count(), like, strict=False)) | set(like[0]) for like in kinds}
            known: set[Any] = set()
            for _ in range(min(PER_KERNEL, len(left))):
                like = max(left, key=lambda key: (len(left[key] - known), -sum(x.size for x in kinds[key].inputs)))
                if not left[like] - known:
                    break
                known |= left.pop(like)
                yield kinds[like]


def _is_plain(array: Any) -> bool:
    """Is it of numbers or strings, and not of variants?"""
    return array.dtype != object or all(type(element) is bytes for element in array.ravel().tolist())


@contextlib.contextmanager
def _recording(*, strings: bool = False) -> Iterator[_Recorder]:
    kernel_registry.global_registry.load()  # the class gets its methods with its first instance
    recorder, build = _Recorder(strings=strings), KernelRegistration.build

    def watched(self: KernelRegistration, construction: OpKernelConstruction) -> BuiltKernel:
        built = build(self, construction)
        recorder.watch(self, construction, built)
        return built

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KernelRegistration, "build", watched)
        yield recorder


def _twins(calls: list[KernelCall]) -> Iterator[KernelCall]:
    """The same calls of ops that were not called, and have a builder in common with one that was."""
    registry, called = kernel_registry.global_registry, {call.op for call in calls}
    for op in registry.ops():
        builders = {k.builder for k in registry.kernels_of(op) if op not in called}
        for call in calls:
            if builders.isdisjoint(k.builder for k in registry.kernels_of(call.op)):
                continue
            twin = proto.NodeDef()
            twin.CopyFrom(call.node)
            twin.op = op
            copied = KernelCall(twin, call.inputs)
            with contextlib.suppress(errors.OpError):
                for name in set(twin.attr) - set(op_registry.global_registry.lookup(op).op_def.attr_map):
                    del twin.attr[name]
                copied.registration(copied.construction(np))
                yield copied


def _recorded(*, strings: bool = False) -> list[KernelCall]:
    """A sample of the calls of all conformance cases and kernel tests."""
    from tests.conformance import cases
    from tests.conformance.test_conformance import outcome

    with _recording(strings=strings) as recorder:
        for family in cases.families() if not strings else ():
            for name in cases.names(family):
                outcome(family, name)
        for folder in _OF_STRINGS if strings else (".",):
            _run_tests(Path(__file__).parent / folder)
    calls = list(recorder.sample())
    return [*calls, *_twins(calls)]


def _with_calls_of(ops: list[str]) -> list[KernelCall]:
    """The sample on file, with the calls of these ops taken anew from the tests of their families."""
    families = {family for family, names in FAMILIES.items() for op in ops if op in names.split()}
    with _recording() as recorder:
        for family in sorted(families):
            _run_tests(Path(__file__).parent / family)
    kept = [call for call in load() if call.op not in ops]
    return [*kept, *(call for call in recorder.sample() if call.op in ops)]


def _run_tests(path: Path) -> None:
    """Those fail that look at the compute callable itself, as it is wrapped meanwhile."""
    pytest.main(["-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(path)])


def main(ops: list[str]) -> None:
    """Run tests, and write the sample: of all ops, with new calls of some, or of those that touch strings."""
    graph, strings = proto.GraphDef(), ops == ["strings"]
    file = STRINGS_FILE if strings else FILE
    for call in _with_calls_of(ops) if ops and not strings else _recorded(strings=strings):
        node = graph.node.add()
        node.CopyFrom(call.node)
        node.name = call.op
        node.attr["_inputs"].CopyFrom(attr_value.encode(list(call.inputs), "list(tensor)"))
    file.write_bytes(gzip.compress(graph.SerializeToString(deterministic=True), mtime=0))
    print(f"{len(graph.node)} calls of {len({node.op for node in graph.node})} ops, {file.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
