"""Every op with extreme attrs, shapes and values: the loop is not held, what fails says why in our words.

The calls are made in a process of its own, which may be stopped.  A call that fails here is repeated by
`python -m tests.kernels.test_every_op extreme Op seed exact`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from tests.support.call_workers import CallWorker, CallWorkers
from tests.support.family_figures import FamilyFigures
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
    attack _FusedConv3D 500017, attack SparseSegmentMean 500024, attack CheckNumerics 500024, chain
    BatchMatrixSolveLs 4547, chain FusedResizeAndPadConv2D 4548, chain Conv3DBackpropFilterV2 4560, chain
    Conv2DBackpropInput 4598, chain DataFormatDimMap 4603, chain RightShift 4640, chain InplaceUpdate 4642, chain
    DynamicPartition 4645, chain ReluGrad 4647, chain InplaceAdd 4651, chain NonMaxSuppressionV4 4652, chain
    RaggedTensorToTensor 4656, chain CropAndResizeGradBoxes 4664, chain DataFormatDimMap 4669, chain Softmax 4669,
    chain Zeta 4655, chain Betainc 4679
    """.split()
).split(", ")
# Of the ops of a group, at least; some are refused, or what is made for them takes until the deadline.
_REACHED = 0.6


@pytest.fixture(scope="module")
def worker() -> Iterator[CallWorker]:
    made = CallWorker()
    yield made
    made.close()


def made_alone(worker: CallWorker, call: str) -> tuple[str, dict[str, Any]]:
    """Make a call; if it does what no call may, make it again in a process that has made no other, whose memory is the
    call's own.  Return what it did that no call may, and its outcome.
    """
    said = worker.call(call)
    if what_is_wrong(call, said):
        worker.close()
        said = worker.call(call)
    return what_is_wrong(call, said), said or {}


def what_is_wrong(call: str, said: dict[str, Any] | None) -> str:
    """Return what a call did that no call may; nothing if all was well."""
    if said is None:
        return f"{call}: the process died, or did not end"
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
    return f"{call}: {'; '.join(wrong)}: {said['call']}" if wrong else ""


@pytest.mark.parametrize("group", range(_GROUPS))
def test_every_op(worker: CallWorker, group: int) -> None:
    """Calls that cost much and are made of little; most are not refused before they come to a kernel."""
    ops = ops_to_run()[group::_GROUPS]
    made = [made_alone(worker, f"chain {op} 0 {accounting}") for op, accounting in zip(ops, cycle(ACCOUNTINGS))]
    assert not [wrong for wrong, _ in made if wrong]
    assert sum(said["reached"] > 0 for _, said in made) > _REACHED * len(ops)


@pytest.mark.parametrize("call", FOUND)
def test_calls_found_before_are_handled(worker: CallWorker, call: str) -> None:
    assert not [wrong for a in ACCOUNTINGS if (wrong := made_alone(worker, f"{call} {a}")[0])]


# Faults of kernels, and a call that shows each.
PLANTED = {
    ("without cost", "Igammac"): "attack Igammac 700016 exact",
    ("without scratch", "TopKV2"): "attack TopKV2 700006 exact",
    ("holding", "Shape"): "attack Shape 700001 rough",
}


@pytest.mark.parametrize(("fault", "op"), PLANTED, ids=lambda text: text.replace(" ", "-"))
def test_planted_faults_are_found(fault: str, op: str) -> None:
    worker, call = CallWorker(("tests.support.programs.faulty_calls_worker", fault, op)), PLANTED[fault, op]
    try:
        # From the second time on, the process has made the call before.  On a busy machine the deadline may come first.
        found = [call for _ in range(6) if what_is_wrong(call, worker.call(call))]
        assert len(found) >= 2
    finally:
        worker.close()


@pytest.mark.soak
@pytest.mark.time_limit(12 * 3600)
@pytest.mark.parametrize("kind", ["extreme", "enlarged", "attack", "chain"])
def test_every_op_with_much_else(worker: CallWorker, kind: str) -> None:
    """Seed after seed, each with the next op, in some processes at once; what is wrong there is repeated alone."""
    ops, seeds, figures = ops_to_run(), Seeds(200_000 if kind == "chain" else 50_000), FamilyFigures()
    accountings, seed_of = list(ACCOUNTINGS), {}

    def calls() -> Iterator[str]:
        for seed in seeds:
            again, number = divmod(seed, len(ops))
            call = f"{kind} {ops[number]} {again + 1} {accountings[again % 2]}"
            seed_of[call] = seed
            yield call

    workers = CallWorkers(int(os.environ.get("AEXEC_CALL_WORKERS", 0)))
    try:
        for call, answer in workers.answers(calls()):
            wrong, said = what_is_wrong(call, answer), answer
            if wrong:
                wrong, said = made_alone(worker, call)
            with seeds.trying(seed_of.pop(call)):
                if said:
                    figures.note(call.split()[1], said)
                assert not wrong, wrong
    finally:
        workers.close()
        print(figures)
    seeds.check()


if __name__ == "__main__":
    one = CallWorker()
    print(one.call(" ".join(sys.argv[1:5])))
    one.close()
