"""Lists the kernels that are array expressions of a given module (`xp`), so that CuPy can run them unchanged.

A test checks the list: it runs every kernel with a stand-in for CuPy whose arrays refuse NumPy's functions. A device
that is plugged in gets these kernels by `register_portable_kernels`.
Next to read: `array_module.py`, and `tests/support/stand_ins/strict_arrays.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np

from aexec.framework import dtypes
from aexec.framework.dtypes import DType
from aexec.framework.kernel_contract.kernel_registry import KernelRegistration, global_registry
from aexec.framework.op_contract import op_registry
from aexec.framework.wire.op_def import OpDef
from aexec.kernels.common.gpu.device_forms import DeviceForm, form_of
from aexec.kernels.common.gpu.elementwise_code import in_one_launch
from aexec.kernels.common.registration import on_host

__all__ = [
    "HOST_ONLY",
    "PORTABLE",
    "READS_BACK",
    "host_arguments",
    "is_on_device",
    "mark",
    "register_portable_kernels",
]

# Element types of CuPy's arrays.
_DEVICE_TYPES = frozenset(np.dtype(t) for t in [*"?bBhHiIlLqQefdFD", ml_dtypes.bfloat16])

# Arguments that are shapes, axes, sizes or seeds: TensorFlow's GPU kernels keep them in host memory, too.
_HOST_ARGUMENTS = frozenset(
    """
    a_shape alg axes axis begin block_shape concat_dim constant_values counter crop_size crops delta dense_shape depth
    dim dimension dims end fft_length fill_value filter_sizes image_size input_shape input_sizes input_start k key ksize
    limit max_output_size maxval minval multiples nbins new_shape nrows num num_classes num_cols num_lower num_rows
    num_samples num_segments num_upper orig_input_shape output_dim0 output_shape padding_value paddings perm
    reduction_indices s0 s1 seed segment_ids_shape shape shapes shift size size_splits split_dim start stop strides
    """.split()
)
# Outputs that are shapes.
_HOST_OUTPUTS = {
    "Rank": ("output",),
    "Shape": ("output",),
    "ShapeN": ("output",),
    "Size": ("output",),
    "SparseConcat": ("output_shape",),
    "SparseReshape": ("output_shape",),
    "SparseSlice": ("output_shape",),
    "SparseSplit": ("output_shape",),
    "VariableShape": ("output",),
}

# Checks, and arithmetic of shapes and seeds: all in host memory on any device.
HOST_ONLY = frozenset(
    """
    Assert BroadcastArgs BroadcastGradientArgs ConcatOffset InTopK InTopKV2 InvertPermutation LinSpace Range
    StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg
    """.split()
)

# Their kernels for DEFAULT devices compute on the host with state that is kept between steps, wherever it is.  Ops that
# only keep or return it, such as AssignVariableOp, serve any device.
_LOOKS_INTO_STATE = frozenset(
    """
    AssignAddVariableOp AssignSubVariableOp DestroyTemporaryVariable IsVariableInitialized QueueDequeueV2 QueueEnqueueV2
    RefIdentity ResourceGather ResourceScatterUpdate TemporaryVariable Variable VariableShape VariableV2
    """.split()
)

# The ops of `_LOOKS_INTO_STATE` that only check for a value; their kernels also serve devices that keep variables.
_LOOKS_AT_CELL = frozenset("DestroyTemporaryVariable IsVariableInitialized RefIdentity Variable VariableV2".split())
# Their kernels for DEFAULT devices take an assigned value without checking it; a form for devices checks it.
_TAKES_UNSEEN = frozenset({"AssignVariableOp"})

# They return no values, or values that the executor reads.
_NO_VALUES = frozenset({"NoOp", "ControlTrigger", "LoopCond"})

PORTABLE: frozenset[str] = frozenset(
    """
    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation All Angle Any
    ApproximateEqual ArgMax ArgMin Asin Asinh Atan Atan2 Atanh AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BatchCholesky
    BatchCholeskyGrad BatchFFT BatchFFT2D BatchFFT3D BatchIFFT BatchIFFT2D BatchIFFT3D BatchMatMul BatchMatMulV2
    BatchMatMulV3 BatchMatrixBandPart BatchMatrixDeterminant BatchMatrixDiag BatchMatrixDiagPart BatchMatrixInverse
    BatchMatrixSetDiag BatchMatrixSolve BatchMatrixTriangularSolve BatchNormWithGlobalNormalization
    BatchNormWithGlobalNormalizationGrad BatchSelfAdjointEig BatchSelfAdjointEigV2 BatchSvd BatchToSpace BatchToSpaceND
    BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1
    Betainc BiasAdd BiasAddGrad BiasAddV1 Bincount Bitcast BitwiseAnd BitwiseOr BitwiseXor BlockLSTM BlockLSTMGrad
    BlockLSTMGradV2 BlockLSTMV2 BroadcastTo Bucketize Cast Ceil CheckNumerics CheckNumericsV2 Cholesky CholeskyGrad
    ClipByValue Complex ComplexAbs Concat ConcatV2 Conj ConjugateTranspose Conv Conv2D Conv2DBackpropFilter
    Conv2DBackpropInput Conv3D Conv3DBackpropFilter Conv3DBackpropFilterV2 Conv3DBackpropInput Conv3DBackpropInputV2 Cos
    Cosh CropAndResize CropAndResizeGradBoxes CropAndResizeGradImage Cross Cumprod Cumsum CumulativeLogsumexp
    DataFormatDimMap DataFormatVecPermute DebugGradientIdentity DeepCopy DenseBincount DepthToSpace
    DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Dequantize Diag
    DiagPart Digamma Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput Div DivNoNan DynamicPartition
    DynamicStitch Eig Einsum Elu EluGrad Empty EnsureShape Equal Erf Erfc Erfinv EuclideanNorm Exp ExpandDims Expint
    Expm1 ExtractImagePatches ExtractVolumePatches FFT FFT2D FFT3D FFTND FakeQuantWithMinMaxArgs
    FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsGradient
    FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient Fill Floor FloorDiv FloorMod
    FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3
    FusedPadConv2D FusedResizeAndPadConv2D GRUBlockCell GRUBlockCellGrad Gather GatherNd GatherV2 Greater GreaterEqual
    GuaranteeConst HSVToRGB HistogramFixedWidth IFFT IFFT2D IFFT3D IFFTND IRFFT IRFFT2D IRFFT3D IRFFTND Identity
    IdentityN Igamma IgammaGradA Igammac Imag ImageProjectiveTransformV2 ImageProjectiveTransformV3 InplaceAdd
    InplaceSub InplaceUpdate Inv InvGrad Invert IsFinite IsInf IsNan L2Loss LRN LRNGrad LSTMBlockCell LSTMBlockCellGrad
    LeakyRelu LeakyReluGrad LeftShift Less LessEqual Lgamma Log Log1p LogMatrixDeterminant LogSoftmax LogicalAnd
    LogicalNot LogicalOr LoopCond LowerBound Lu MatMul MatrixBandPart MatrixDeterminant MatrixDiag MatrixDiagPart
    MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixInverse MatrixSetDiag MatrixSetDiagV2
    MatrixSetDiagV3 MatrixSolve MatrixTriangularSolve Max MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad
    MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradGradWithArgmax MaxPoolGradV2 MaxPoolGradWithArgmax MaxPoolV2
    MaxPoolWithArgmax Maximum Mean Min Minimum MirrorPad MirrorPadGrad Mod Mul MulNoNan Multinomial Ndtri
    NearestNeighbors Neg NextAfter NotEqual NthElement OneHot OnesLike Pack Pad PadV2 ParallelConcat
    ParallelDynamicStitch PlaceholderWithDefault Polygamma PopulationCount Pow PreventGradient Prod Qr
    QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4
    QuantizeAndDequantizeV4Grad QuantizeV2 QuantizedReshape RFFT RFFT2D RFFT3D RFFTND RGBToHSV RaggedFillEmptyRows
    RaggedFillEmptyRowsGrad RandomCrop RandomGamma RandomGammaGrad RandomShuffle RandomStandardNormal RandomUniform
    RandomUniformInt Rank Real RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad Reshape ResizeBicubic
    ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad Reverse
    ReverseSequence ReverseV2 RightShift Rint Roll Round Rsqrt RsqrtGrad ScatterNd ScatterNdNonAliasingAdd SegmentMax
    SegmentMean SegmentMin SegmentProd SegmentSum Select SelectV2 SelfAdjointEig SelfAdjointEigV2 Selu SeluGrad Shape
    ShapeN Sigmoid SigmoidGrad Sign Sin Sinh Size Slice Snapshot Softmax SoftmaxCrossEntropyWithLogits Softplus
    SoftplusGrad Softsign SoftsignGrad SpaceToBatch SpaceToBatchND SpaceToDepth SparseConcat SparseFillEmptyRows
    SparseFillEmptyRowsGrad SparseMatMul SparseReorder SparseReshape SparseSegmentMean SparseSegmentMeanGrad
    SparseSegmentMeanGradV2 SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNGrad
    SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumGrad
    SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments SparseSlice SparseSliceGrad
    SparseSoftmaxCrossEntropyWithLogits SparseSplit SparseTensorDenseMatMul SparseToDense Split SplitV Sqrt SqrtGrad
    Square SquaredDifference Squeeze StatelessMultinomial StatelessRandomGammaV2 StatelessRandomGammaV3
    StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformFullInt
    StatelessRandomUniformFullIntV2 StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2
    StatelessShuffle StatelessTruncatedNormal StatelessTruncatedNormalV2 StopGradient StridedSlice StridedSliceGrad Sub
    Sum Svd Tan Tanh TanhGrad TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
    TensorStridedSliceUpdate Tile TileGrad TopKV2 Transpose TridiagonalMatMul TridiagonalSolve TruncateDiv TruncateMod
    TruncatedNormal Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex UnsortedSegmentMax
    UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum UpperBound Where Xdivy Xlog1py Xlogy ZerosLike Zeta
    _FusedBatchNormEx _FusedConv2D _FusedConv3D _FusedDepthwiseConv2dNative _FusedMatMul _HostCast
    """.split()
)

# The ops of `PORTABLE` for which the host must wait for values: to check them, or because a shape depends on them.
READS_BACK: frozenset[str] = frozenset(
    """
    ArgMax ArgMin BatchMatrixInverse BatchMatrixSolve BatchSelfAdjointEig BatchSelfAdjointEigV2 Bincount BlockLSTM
    BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 Cast CheckNumerics CheckNumericsV2 ClipByValue CropAndResize
    CropAndResizeGradBoxes CropAndResizeGradImage DenseBincount Dilation2DBackpropFilter Dilation2DBackpropInput Div
    DynamicPartition DynamicStitch Eig FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel FloorDiv FloorMod
    Gather GatherNd GatherV2 HistogramFixedWidth IgammaGradA InplaceAdd InplaceSub LowerBound Lu MatMul MatrixInverse
    MatrixSolve MaxPool MaxPool3D MaxPoolGrad MaxPoolGradGradWithArgmax MaxPoolGradV2 MaxPoolGradWithArgmax MaxPoolV2
    MaxPoolWithArgmax Mod NthElement OneHot ParallelDynamicStitch Polygamma QuantizeAndDequantizeV2
    QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 QuantizeV2 RGBToHSV RaggedFillEmptyRows RaggedFillEmptyRowsGrad
    RandomGamma RandomGammaGrad ReverseSequence ScatterNd ScatterNdNonAliasingAdd SegmentMax SegmentMean SegmentMin
    SegmentProd SegmentSum Select SelectV2 SelfAdjointEig SelfAdjointEigV2 SparseConcat SparseFillEmptyRows
    SparseFillEmptyRowsGrad SparseReorder SparseSegmentMean SparseSegmentMeanGrad SparseSegmentMeanGradV2
    SparseSegmentMeanWithNumSegments SparseSegmentSqrtN SparseSegmentSqrtNGrad SparseSegmentSqrtNGradV2
    SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumGrad SparseSegmentSumGradV2
    SparseSegmentSumWithNumSegments SparseSlice SparseSliceGrad SparseSoftmaxCrossEntropyWithLogits SparseSplit
    SparseTensorDenseMatMul SparseToDense StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessTruncatedNormal
    StatelessTruncatedNormalV2 TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TopKV2
    TridiagonalSolve TruncateDiv TruncateMod TruncatedNormal Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2
    UnravelIndex UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum UpperBound Where Zeta
    _HostCast
    """.split()
)


def is_on_device(dtype: DType) -> bool:
    """True if CuPy has arrays of the type."""
    return dtype.is_simple and dtype.np in _DEVICE_TYPES


def host_arguments(op_def: OpDef) -> tuple[str, ...]:
    """Inputs and outputs that a kernel expects in host memory even if the others are on a device."""
    inputs = [arg.name for arg in op_def.inputs if arg.name in _HOST_ARGUMENTS]
    return (*inputs, *_HOST_OUTPUTS.get(op_def.name, ()))


def register_portable_kernels(
    device_type: str, can_have: Callable[[DType], bool] = is_on_device, *, keeps_variables: bool = False
) -> None:
    """Register, for a device type, the portable kernels that it lacks, with the CPU's builders.

    Sizes, axes and seeds are in host memory, and so are int32 tensors, as in TensorFlow: int32 arithmetic is mostly of
    shapes and counters, which the host waits for.  Kernels without arrays in the device's memory are registered for all
    ops that need not be moved to the host.

    Args:
        can_have: whether the device has arrays of a type.
        keeps_variables: its queued work updates variables, as `device.QueuedKernel.updates` says.  On other devices
            variables can be assigned and read; any other operation moves a variable to the host.
    """
    derivation = partial(_derived, device_type=device_type, can_have=can_have, keeps_variables=keeps_variables)
    without = _LOOKS_INTO_STATE - _LOOKS_AT_CELL | _TAKES_UNSEEN if keeps_variables else _LOOKS_INTO_STATE
    global_registry.derive(device_type, derivation, without=without)


def _derived(
    kernel: KernelRegistration, device_type: str, can_have: Callable[[DType], bool], keeps_variables: bool
) -> Iterator[KernelRegistration]:
    if kernel.device_type != "CPU":
        return
    form = form_of(kernel.op)
    if form is not None and form.of_variables and not keeps_variables:
        return
    op_def = op_registry.global_registry.lookup(kernel.op).op_def
    everything = tuple(arg.name for arg in (*op_def.inputs, *op_def.outputs))
    if kernel.op in HOST_ONLY or kernel.op in _NO_VALUES:
        yield replace(kernel, device_type=device_type, builder=on_host(kernel.builder), host_memory=everything)
        return
    if form is None and kernel.op not in PORTABLE:
        return
    constraints = {
        attr.name: frozenset(filter(can_have, kernel.constraints.get(attr.name, dtypes.POD)))
        for attr in op_def.attrs
        if attr.type in ("type", "list(type)")
    }
    if form is not None:
        yield from _of_form(kernel, form, device_type, constraints)
        return
    values = constraints.get("T", frozenset())
    if dtypes.int32 in values:
        on_the_host = {**constraints, "T": frozenset({dtypes.int32})}
        builder = on_host(kernel.builder)
        yield replace(kernel, device_type=device_type, builder=builder, host_memory=everything, constraints=on_the_host)
        constraints["T"] = values - {dtypes.int32}
    if all(constraints.values()):
        yield replace(
            kernel,
            device_type=device_type,
            builder=in_one_launch(kernel.op, kernel.builder),
            host_memory=host_arguments(op_def),
            constraints=constraints,
        )


def _of_form(
    kernel: KernelRegistration, form: DeviceForm, device_type: str, constraints: dict[str, frozenset[DType]]
) -> Iterator[KernelRegistration]:
    # The host waits for int32 variables, which are counters: they are in its memory, as in TensorFlow.
    for name in ("T", "dtype"):
        if name in constraints and form.of_variables:
            constraints[name] -= {dtypes.int32}
    for name, types in form.constraints.items():
        constraints[name] &= types
    if all(constraints.values()):
        host_memory = form.host_memory
        if host_memory is None:
            host_memory = host_arguments(op_registry.global_registry.lookup(kernel.op).op_def)
        yield replace(
            kernel, device_type=device_type, builder=form.builder, host_memory=host_memory, constraints=constraints
        )


def mark(kernel: KernelRegistration) -> str:
    """`xp` for a kernel that CuPy can run; `xp, reads back` if the host has to wait for its values; else ""."""
    on_device = all(any(map(is_on_device, types)) for types in kernel.constraints.values() if types)
    if kernel.op not in PORTABLE or not on_device or _is_all_on_host(kernel):
        return ""
    return "xp, reads back" if kernel.op in READS_BACK else "xp"


def _is_all_on_host(kernel: KernelRegistration) -> bool:
    op_def = op_registry.global_registry.lookup(kernel.op).op_def
    return bool(kernel.host_memory) and {arg.name for arg in (*op_def.inputs, *op_def.outputs)} <= {*kernel.host_memory}
