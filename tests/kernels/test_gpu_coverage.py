"""Which ops TensorFlow has kernels for GPUs for, and aexec has none, each with a reason.

The ops are those of TensorFlow's registry in a build for CUDA: `tests/support/data/tensorflow_gpu_ops.json`.
`python -m tests.kernels.test_gpu_coverage` prints what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aexec.framework.kernel_contract import kernel_registry
from aexec.kernels.common.portable import register_portable_kernels
from tests.support.reasons import Reasons

KIND = "TestCoverage"
DATA = Path(__file__).parents[1] / "support/data/tensorflow_gpu_ops.json"
DOCS = Path(__file__).parents[2] / "docs/devices.md"
registry = kernel_registry.global_registry

# The first pattern that an op matches says why there is no kernel.
REASONS = {
    "the executor's own, which need no kernel": "Enter Exit Merge NextIteration Switch Ref* _SwitchN",
    "XLA": "Xla* _Xla*",
    "tf.data's": "*Iterator* *Dataset* Optional* GetOptions DummyIterationCounter",
    "NCCL, and collectives across processes": "Nccl* _Nccl* Collective*",
    "cuDNN's recurrent networks": "Cudnn*",
    "matrices as CSR variants": "*SparseMatrix*",
    "of TensorFlow's own runtime": (
        "_Copy* _Eager* _Parallel* _Scoped* _TensorToHash* CheckPinned Fact IsTensorFloat32Enabled Sleep* SyncDevice"
    ),
    "lists of tensors, whose elements are the host's": "*TensorList* RaggedTensorFromVariant",
    "arrays of tensors of the first two generations": "TensorArray*",
    "generators in variables, which are the host's": "Rng* Stateful*",
    "variants of sparse tensors": "DeserializeSparse",
    "boxes one after the other, each by those before it": "NonMax* GenerateBoundingBoxProposals",
    "draws that begin where the one before ended": "ParameterizedTruncatedNormal",
    "functions that CuPy lacks": "Dawsn Fresnel* Spence",
    "batches calls of functions, on the host": "BatchFunction",
    "not there on any device": ("ApproxTopK CTCLossV2 DebugNumericSummaryV2 StochasticCastToInt _FusedBatchNormGradEx"),
    "removed from graphs since version 7": "TopK",
}
WHY = Reasons(REASONS)


def ops_of_tensorflow() -> list[str]:
    return " ".join(json.loads(DATA.read_text())["ops"]).split()


@contextmanager
def _device_type() -> Iterator[None]:
    register_portable_kernels(KIND, keeps_variables=True)
    try:
        yield
    finally:
        registry._derivations.pop(KIND)


def has_kernel(op: str) -> bool:
    kernels = registry.kernels_of(op)
    default = registry.takes_default(KIND, op) and any(k.device_type == "DEFAULT" for k in kernels)
    return default or bool(registry._derived_of(KIND, kernels))


def missing() -> list[str]:
    with _device_type():
        return [op for op in ops_of_tensorflow() if not has_kernel(op)]


def test_each_missing_kernel_has_a_reason() -> None:
    assert not WHY.unexplained(missing())


def test_each_reason_is_that_of_a_missing_kernel() -> None:
    assert not WHY.unused(missing())


def test_documentation_states_the_share() -> None:
    total = len(ops_of_tensorflow())
    assert f"{total - len(missing())} of the {total} ops" in DOCS.read_text()


def main() -> None:
    """Print what is missing, by its reason."""
    without = missing()
    WHY.show(without)
    total = len(ops_of_tensorflow())
    lacking = len(without)
    print(f"{total - lacking} of {total} have a kernel")


if __name__ == "__main__":
    main()
