"""Registered gradients against difference quotients, in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aexec
from aexec import ops
from aexec.autodiff.aggregation import as_dense
from aexec.autodiff.gradients import gradients
from aexec.framework.kernel_contract.kernel_registry import global_registry as kernels
from aexec.framework.op_contract.gradient_registry import global_registry
from tests.autodiff.cases import CASES, ELSEWHERE, Case

REGISTERED = global_registry.ops()


def _scalar(outputs: Any) -> Any:
    """One number that depends on every element of the outputs, each with a weight of its own."""
    total = None
    for output in outputs if isinstance(outputs, list | tuple) else [outputs]:
        if output.dtype.is_complex:
            real = "float64" if output.dtype.base is aexec.complex128 else "float32"
            parts = [ops.real(output, Tout=real), ops.imag(output, Tout=real)]
        elif output.dtype.is_floating:
            parts = [output]
        else:
            continue
        for part in parts:
            flat = ops.cast(ops.reshape(part, [-1]), DstT="float64")
            weights = ops.sin(1.0 + ops.cast(ops.range(0, ops.size(flat), 1), DstT="float64"))
            term = ops.sum(flat * weights, [0])
            total = term if total is None else total + 1.7 * term
    return total


def _built(case: Case, shapes: list[Any]) -> tuple[list[Any], Any, list[Any]]:
    """Placeholders, the number that they make, and its gradients."""
    xs = [aexec.placeholder(a.dtype, shape) for a, shape in zip(case.arguments, shapes, strict=True)]
    y = _scalar(case.build(*xs))
    return xs, y, [as_dense(g) for g in gradients(y, [xs[i] for i in case.varied], unconnected="zero")]


async def _along(call: Any, case: Case, index: int, direction: np.ndarray) -> float:
    """The difference quotient along a direction of one argument."""
    values = []
    for sign in (1.0, -1.0):
        moved = list(case.arguments)
        moved[index] = moved[index] + (sign * case.epsilon * direction).astype(moved[index].dtype)
        values.append((await call(*moved))[0])
    return (values[0] - values[1]) / (2 * case.epsilon)


def _directions(array: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Three random ones: a gradient that is wrong anywhere is wrong along these."""
    found = []
    for _ in range(3):
        direction = random.normal(size=array.shape)
        if array.dtype.kind == "c":
            direction = direction + 1j * random.normal(size=array.shape)
        found.append(direction / max(1.0, float(np.linalg.norm(direction))))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
async def test_gradient_is_the_limit_of_differences(case: Case) -> None:
    with aexec.Graph() as graph:
        xs, y, made = _built(case, [a.shape for a in case.arguments])
        try:
            loose_xs, _, loose = ([], None, []) if case.static else _built(case, [None] * len(case.arguments))
        except aexec.errors.UnimplementedError:
            loose_xs, loose = [], []  # the gradient needs sizes, and says so
    async with aexec.Session(graph) as session:
        found = await session.run(made, dict(zip(xs, case.arguments, strict=True)))
        without_shapes = await session.run(loose, dict(zip(loose_xs, case.arguments, strict=False))) if loose else []
        call = session.make_callable([y], xs)
        random = np.random.default_rng(3)
        for grad, index in zip(found, case.varied, strict=True):
            assert grad.shape == case.arguments[index].shape
            scale = max(1.0, float(np.abs(grad).max(initial=0.0)))
            for direction in _directions(case.arguments[index], random):
                expected = await _along(call, case, index, direction)
                assert np.vdot(direction, grad).real == pytest.approx(expected, rel=0, abs=case.tolerance * scale)
    for grad, other in zip(found, without_shapes, strict=bool(loose)):
        np.testing.assert_allclose(grad, other, rtol=1e-6, atol=1e-6)


def test_every_registered_gradient_is_differentiated() -> None:
    missing = sorted(set(REGISTERED) - {case.op for case in CASES} - set(ELSEWHERE))
    assert missing == [], "add a case to tests/autodiff/cases.py"


# Ops with a kernel whose gradient TensorFlow has, and that have none here: why.
ARGUED = {
    **dict.fromkeys(
        ["RaggedTensorFromVariant", "RaggedTensorToVariant"],
        "ragged tensors in variants, which only its Python wrapper of them differentiates",
    ),
    **dict.fromkeys(
        ["SparseMatrixMul", "SparseSparseMaximum", "SparseSparseMinimum"], "TensorFlow's refuses, too: not implemented"
    ),
}

# Ops that are differentiated as parts of conditionals and loops, which contexts know.
OF_CONTROL_FLOW = set(
    "Enter Exit LoopCond Merge NextIteration RefEnter RefExit RefMerge RefNextIteration RefSwitch Switch".split()
)


def test_gradients_that_tensorflow_has_are_here_or_said_why_not() -> None:
    """Those of ops without a kernel cannot be used, and are printed."""
    theirs = (Path(__file__).parent / "data" / "tensorflow_gradients.txt").read_text().split()
    missing = [op for op in theirs if not global_registry.has(op) and op not in OF_CONTROL_FLOW]
    without_kernel = [op for op in missing if not kernels.kernels_of(op)]
    print(f"{len(REGISTERED)} gradients are registered; TensorFlow 2.21 has {len(theirs)}")
    print(f"not here, nor is there a kernel: {', '.join(without_kernel)}")
    print(f"not here, though there is a kernel: {', '.join(sorted(ARGUED))}")
    assert sorted(set(missing) - set(without_kernel)) == sorted(ARGUED)
