"""Every op with extreme attrs, shapes and values: the loop is not held, what fails says why in our words.

The calls are made in a process of its own, which may be stopped.  A call that fails here is repeated by
`python -m tests.kernels.test_every_op extreme Op seed exact`.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from tests.support.programs.extreme_calls import ops_to_run
from tests.support.programs.extreme_calls_worker import (
    ACCOUNTINGS,
    ANSWERED_MS,
    DEADLINE,
    HELD_MS,
    LATE_MS,
    UNCOUNTED_MIB,
    WENT_ON_MS,
)
from tests.support.programs.seeds import Seeds

# How long a call may take, its session's end included, before it is taken for one that never ends.
_PATIENCE = 30.0
_GROUPS = 8
# Calls that held the loop, took what was not counted, or went on, once.
FOUND = " ".join(
    """
    attack _FusedConv3D 1, attack _FusedDepthwiseConv2dNative 3013, chain _FusedDepthwiseConv2dNative 1016, chain
    _FusedDepthwiseConv2dNative 3047, chain _FusedMatMul 3058, chain ArgMin 508, chain Assign 5, chain
    AudioSpectrogram 3015, chain AudioSummary 900, attack AudioSummaryV2 5, chain AvgPool 3, attack AvgPool3D 701,
    attack BandedTriangularSolve 3021, chain BandedTriangularSolve 107, attack BatchFFT 1, chain BatchMatMul 400,
    attack BatchMatMulV3 1014, chain BatchMatrixDiag 5, attack BatchMatrixSolveLs 3017, attack
    BatchNormWithGlobalNormalizationGrad 4001, attack BatchToSpace 4006, chain BroadcastGradientArgs 400, attack
    BroadcastTo 4006, attack Bucketize 1, attack CombinedNonMaxSuppression 1016, attack Conv 4100, chain ConcatOffset
    4048, chain CropAndResize 4061, attack CTCGreedyDecoder 4021, chain CTCLoss 1020, attack Cumprod 4035, attack
    DecodePaddedRaw 1008, chain DenseBincount 3027, chain DenseCountSparseOutput 501, attack DenseToDenseSetOperation
    1000, chain DenseToDenseSetOperation 511, attack DepthToSpace 1, chain DepthwiseConv2dNative 3034, chain
    Dilation2D 4051, chain Dilation2DBackpropFilter 3018, chain DrawBoundingBoxesV2 1, chain DynamicPartition 4051,
    chain EditDistance 401, attack Eig 3018, chain Eig 1, chain EncodePng 1, chain EncodePng 500, chain EuclideanNorm
    3027, chain EuclideanNorm 4034, attack ExtractGlimpse 704, attack ExtractGlimpseV2 704, chain
    FakeQuantWithMinMaxArgs 4033, chain FakeQuantWithMinMaxVarsPerChannel 1008, attack
    FakeQuantWithMinMaxVarsPerChannelGradient 4004, attack FFTND 4000, chain GatherNd 526, chain HSVToRGB 1, chain
    IFFT 106, attack ImageProjectiveTransformV2 1004, chain ImageProjectiveTransformV2 4013, attack ImageSummary 701,
    attack InTopK 5, chain IRFFTND 3015, attack LeakyReluGrad 703, chain ListDiff 3006, attack LogMatrixDeterminant 0,
    chain LogUniformCandidateSampler 1004, chain LookupTableRemoveV2 3, attack LRNGrad 4, attack LSTMBlockCell 4014,
    attack MatrixBandPart 4, chain MatrixBandPart 3004, chain MatrixDiagV2 108, chain MatrixInverse 2, attack
    MaxPoolWithArgmax 0, chain MaxPoolWithArgmax 509, chain Mean 3052, chain MergeSummary 7, chain Mfcc 402, attack
    NearestNeighbors 4, chain NearestNeighbors 6019, attack NonMaxSuppression 4030, attack NonMaxSuppressionV4 3013,
    chain OneHot 3000, chain OneHot 3020, chain ParseExample 506, attack Qr 3, chain QuantizeAndDequantize 3, chain
    RaggedGather 304, attack RaggedRange 1002, chain RaggedRange 7, attack RaggedTensorToTensor 1000, chain
    RaggedTensorToVariant 5, attack RaggedTensorToVariantGradient 3018, chain RaggedTensorToVariantGradient 401,
    attack Reshape 3000, attack ResizeArea 0, attack ResizeBicubic 4030, chain ResizeNearestNeighbor 505, chain
    ResizeNearestNeighbor 636, chain ResizeNearestNeighborGrad 304, attack ResourceSparseApplyAdagrad 3, chain Roll
    1003, attack RsqrtGrad 4049, chain Save 303, chain Save 626, chain ScaleAndTranslateGrad 3027, attack ScatterMax
    4022, chain ScatterUpdate 4072, chain SelfAdjointEig 302, chain SerializeManySparse 1018, attack SerializeSparse
    2, attack SerializeSparse 4003, chain SerializeTensor 3031, chain SerializeTensor 4093, attack Sigmoid 0, chain
    Sigmoid 1013, chain SpaceToBatch 106, chain SpaceToDepth 401, attack SparseAddGrad 0, chain SparseApplyAdagrad 1,
    attack SparseFillEmptyRowsGrad 1, chain SparseMatMul 4024, chain SparseReduceMax 1001, attack
    SparseSegmentMeanGradV2 0, chain SparseSegmentMeanWithNumSegments 1, chain SparseSegmentMeanWithNumSegments 1003,
    chain SparseSegmentSqrtNGrad 400, attack SparseSoftmax 6003, attack SparseSparseMaximum 0, attack SparseToDense
    4031, chain SparseToSparseSetOperation 6, chain SquaredDifference 527, chain StatelessSampleDistortedBoundingBox
    3060, attack StringFormat 4010, attack Svd 0, chain Svd 502, attack TensorListConcat 0, chain TensorListGather
    1003, chain TensorListSetItem 2, chain TensorMapHasKey 3026, chain TensorMapLookup 107, attack TensorSummary 0,
    chain TensorSummary 3025, chain TensorSummary 4053, chain TensorSummaryV2 1008, chain TensorSummaryV2 3000, chain
    TensorArrayGatherV3 4091, attack TopKV2 1, chain UnicodeDecodeWithOffsets 502, chain UnicodeEncode 3013, chain
    UnicodeScript 1, attack UnravelIndex 1007, attack Xlog1py 0, chain FakeQuantWithMinMaxArgs 100000, chain AvgPool
    100010, chain GatherNd 100018, chain StringSplit 100018, chain AsString 100015, chain ReduceJoin 100020, chain
    DecodePaddedRaw 100025, chain ConcatV2 100004, attack HistogramFixedWidth 100041, chain TensorListScatter 100042,
    attack SparseSegmentSqrtNGradV2 100044, attack IFFTND 100026, enlarged SparseCrossHashed 100045, attack Cast
    100053, attack RaggedCross 100056, chain MirrorPadGrad 100050, attack SparseSegmentSumGrad 100059, attack Mean
    100053, chain Ceil 300002, chain TensorArrayWrite 100052, attack ConjugateTranspose 100029, enlarged
    SerializeSparse 300001, attack QueueDequeueUpToV2 300002, chain QueueEnqueueMany 300004, attack
    MaxPoolGradGradWithArgmax 300004, chain Xlogy 400007, attack LookupTableImportV2 400006, chain
    ParseSingleSequenceExample 400003, chain RangeDataset 500000, chain SpaceToBatch 500007, chain MatrixSolve 500014,
    attack _FusedConv3D 500017, attack SparseSegmentMean 500024, attack CheckNumerics 500024
    """.split()
).split(", ")
# Of the ops of a group, at least; some are refused, or what is made for them takes until the deadline.
_REACHED = 0.6


class Worker:
    """The process that makes the calls.

    Attributes:
        reached: ops whose kernels were called.
    """

    def __init__(self) -> None:
        self.reached: set[str] = set()
        self._process: subprocess.Popen[str] | None = None

    def call(self, kind: str, op: str, seed: int, accounting: str) -> dict[str, Any] | None:
        """What came of a call; None if nothing did."""
        if self._process is None:
            command = [sys.executable, "-m", "tests.support.programs.extreme_calls_worker"]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{kind} {op} {seed} {accounting}\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _PATIENCE)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.close()
            return None
        said: dict[str, Any] = json.loads(line)
        if said["reached"]:
            self.reached.add(op)
        return said

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def what_is_wrong(worker: Worker, *call: Any) -> str:
    """What a call did that no call may, also in a process that has made no other, whose memory is the call's own."""
    if _what_is_wrong(worker, *call):
        worker.close()
        return _what_is_wrong(worker, *call)
    return ""


def _what_is_wrong(worker: Worker, kind: str, op: str, seed: int, accounting: str) -> str:
    name = f"{kind} {op} {seed} {accounting}"
    said = worker.call(kind, op, seed, accounting)
    if said is None:
        return f"{name}: the process died, or did not end"
    wrong = []
    if said["foreign"]:
        wrong.append(said["error"])
    if said["no_strings"]:
        wrong.append(f"{said['no_strings']} have elements that are no strings")
    if said["held_ms"] > HELD_MS:
        wrong.append(f"the loop was held for {said['held_ms']:.0f} ms")
    if said["late_ms"] > LATE_MS:
        wrong.append(f"the loop waited for {said['late_ms']:.0f} ms")
    if said["uncounted_mib"] > UNCOUNTED_MIB:
        wrong.append(f"it took {said['peak_mib']:.0f} MiB, of which {said['counted_mib']:.0f} were counted")
    if said["took_ms"] > ANSWERED_MS:
        wrong.append(f"it was answered after {said['took_ms']:.0f} ms, with a deadline of {1000 * DEADLINE:.0f}")
    if said["went_on_ms"] > WENT_ON_MS:
        wrong.append(f"it went on for {said['went_on_ms']:.0f} ms of the processor when it had been answered")
    return f"{name}: {'; '.join(wrong)}: {said['call']}" if wrong else ""


@pytest.mark.parametrize("group", range(_GROUPS))
def test_every_op(worker: Worker, group: int) -> None:
    """Calls that cost much and are made of little; most are not refused before they come to a kernel."""
    ops = ops_to_run()[group::_GROUPS]
    worker.reached.clear()
    found = [what_is_wrong(worker, "chain", op, 0, accounting) for op, accounting in zip(ops, cycle(ACCOUNTINGS))]
    assert not [text for text in found if text]
    assert len(worker.reached) > _REACHED * len(ops)


@pytest.mark.parametrize("call", FOUND)
def test_calls_found_before_are_handled(worker: Worker, call: str) -> None:
    kind, op, seed = call.split()
    assert not [wrong for accounting in ACCOUNTINGS if (wrong := what_is_wrong(worker, kind, op, seed, accounting))]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["extreme", "enlarged", "attack", "chain"])
def test_every_op_with_much_else(worker: Worker, kind: str) -> None:
    """Seed after seed, each with the next op."""
    ops, seeds = ops_to_run(), Seeds(200_000 if kind == "chain" else 50_000)
    for seed in seeds:
        with seeds.trying(seed):
            again, number = divmod(seed, len(ops))
            accounting = list(ACCOUNTINGS)[again % 2]
            if wrong := what_is_wrong(worker, kind, ops[number], again + 1, accounting):
                raise AssertionError(wrong)
    seeds.check()


if __name__ == "__main__":
    one = Worker()
    print(one.call(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
    one.close()
