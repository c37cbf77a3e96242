"""Which op is defined in which family.  Written by scripts/gen-stubs; do not edit."""

FAMILIES = {
    "array": """
        BatchToSpace BatchToSpaceND BroadcastArgs BroadcastGradientArgs BroadcastTo CheckNumerics CheckNumericsV2
        Concat ConcatOffset ConcatV2 ConjugateTranspose Const Copy CopyHost DebugGradientIdentity
        DebugGradientRefIdentity DeepCopy DepthToSpace DynamicPartition DynamicStitch EditDistance Empty EnsureShape
        ExpandDims ExtractImagePatches ExtractVolumePatches Fill Fingerprint Gather GatherNd GatherV2 GuaranteeConst
        HostConst Identity IdentityN ImmutableConst InplaceAdd InplaceSub InplaceUpdate InvertPermutation ListDiff
        MirrorPad MirrorPadGrad OneHot OnesLike Pack Pad PadV2 ParallelConcat ParallelDynamicStitch Placeholder
        PlaceholderV2 PlaceholderWithDefault PreventGradient Rank RefIdentity Reshape Reverse ReverseSequence
        ReverseV2 Roll ScatterNd ScatterNdNonAliasingAdd Shape ShapeN Size Slice Snapshot SpaceToBatch SpaceToBatchND
        SpaceToDepth Split SplitV Squeeze StopGradient StridedSlice StridedSliceGrad TensorScatterAdd TensorScatterMax
        TensorScatterMin TensorScatterSub TensorScatterUpdate TensorStridedSliceUpdate Tile TileGrad Transpose Unique
        UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex Where ZerosLike _EagerConst
        _ParallelConcatStart _ParallelConcatUpdate
    """,
    "audio": """
        AudioSpectrogram DecodeWav EncodeWav Mfcc
    """,
    "control_flow": """
        Abort Case CollectiveBcastRecv CollectiveBcastSend CollectiveGather CollectiveReduce ControlTrigger
        DeviceIndex Enter Exit FakeParam For If LoopCond Merge NextIteration NoOp OptionalFromValue OptionalGetValue
        OptionalHasValue OptionalNone PartitionedCall Recv RefEnter RefExit RefMerge RefNextIteration RefSelect
        RefSwitch RemoteCall Send StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile Switch
        SymbolicGradient ToBool While _Arg _ArrayToList _DeviceArg _DeviceRetval _HostRecv _HostSend _If _ListToArray
        _Recv _Retval _Send _SwitchN _While
    """,
    "data_flow": """
        AccumulatorApplyGradient AccumulatorNumAccumulated AccumulatorSetGlobalStep AccumulatorTakeGradient Barrier
        BarrierClose BarrierIncompleteSize BarrierInsertMany BarrierReadySize BarrierTakeMany Batch BatchFunction
        ConditionalAccumulator DeleteSessionTensor FIFOQueue FIFOQueueV2 FakeQueue GetSessionHandle GetSessionHandleV2
        GetSessionTensor MapClear MapIncompleteSize MapPeek MapSize MapStage MapUnstage MapUnstageNoKey
        OrderedMapClear OrderedMapIncompleteSize OrderedMapPeek OrderedMapSize OrderedMapStage OrderedMapUnstage
        OrderedMapUnstageNoKey PaddingFIFOQueue PaddingFIFOQueueV2 PriorityQueue PriorityQueueV2 QueueClose
        QueueCloseV2 QueueDequeue QueueDequeueMany QueueDequeueManyV2 QueueDequeueUpTo QueueDequeueUpToV2
        QueueDequeueV2 QueueEnqueue QueueEnqueueMany QueueEnqueueManyV2 QueueEnqueueV2 QueueIsClosed QueueIsClosedV2
        QueueSize QueueSizeV2 RandomShuffleQueue RandomShuffleQueueV2 RecordInput ResourceAccumulatorApplyGradient
        ResourceAccumulatorNumAccumulated ResourceAccumulatorSetGlobalStep ResourceAccumulatorTakeGradient
        ResourceConditionalAccumulator SparseAccumulatorApplyGradient SparseAccumulatorTakeGradient
        SparseConditionalAccumulator Stack StackClose StackCloseV2 StackPop StackPopV2 StackPush StackPushV2 StackV2
        Stage StageClear StagePeek StageSize TensorArray TensorArrayClose TensorArrayCloseV2 TensorArrayCloseV3
        TensorArrayConcat TensorArrayConcatV2 TensorArrayConcatV3 TensorArrayGather TensorArrayGatherV2
        TensorArrayGatherV3 TensorArrayGrad TensorArrayGradV2 TensorArrayGradV3 TensorArrayGradWithShape
        TensorArrayPack TensorArrayRead TensorArrayReadV2 TensorArrayReadV3 TensorArrayScatter TensorArrayScatterV2
        TensorArrayScatterV3 TensorArraySize TensorArraySizeV2 TensorArraySizeV3 TensorArraySplit TensorArraySplitV2
        TensorArraySplitV3 TensorArrayUnpack TensorArrayV2 TensorArrayV3 TensorArrayWrite TensorArrayWriteV2
        TensorArrayWriteV3 Unbatch UnbatchGrad Unstage
    """,
    "datasets": """
        AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 AnonymousMemoryCache AnonymousMultiDeviceIterator
        AnonymousMultiDeviceIteratorV3 AnonymousRandomSeedGenerator AnonymousSeedGenerator AssertCardinalityDataset
        AssertNextDataset AssertPrevDataset AutoShardDataset BatchDataset BatchDatasetV2 BytesProducedStatsDataset
        CSVDataset CSVDatasetV2 CacheDataset CacheDatasetV2 ChooseFastestBranchDataset ChooseFastestDataset
        CompressElement ConcatenateDataset DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3
        DataServiceDatasetV4 DatasetCardinality DatasetFingerprint DatasetFromGraph DatasetToGraph DatasetToGraphV2
        DatasetToSingleElement DatasetToTFRecord DeleteIterator DeleteMemoryCache DeleteMultiDeviceIterator
        DeleteRandomSeedGenerator DeleteSeedGenerator DenseToSparseBatchDataset DeserializeIterator
        DirectedInterleaveDataset DummyIterationCounter DummyMemoryCache DummySeedGenerator
        ExperimentalAssertNextDataset ExperimentalAutoShardDataset ExperimentalBytesProducedStatsDataset
        ExperimentalCSVDataset ExperimentalChooseFastestDataset ExperimentalDatasetCardinality
        ExperimentalDatasetToTFRecord ExperimentalDenseToSparseBatchDataset ExperimentalDirectedInterleaveDataset
        ExperimentalGroupByReducerDataset ExperimentalGroupByWindowDataset ExperimentalIgnoreErrorsDataset
        ExperimentalIteratorGetDevice ExperimentalLMDBDataset ExperimentalLatencyStatsDataset
        ExperimentalMapAndBatchDataset ExperimentalMapDataset ExperimentalMatchingFilesDataset
        ExperimentalMaxIntraOpParallelismDataset ExperimentalNonSerializableDataset
        ExperimentalParallelInterleaveDataset ExperimentalParseExampleDataset ExperimentalPrivateThreadPoolDataset
        ExperimentalRandomDataset ExperimentalRebatchDataset ExperimentalScanDataset
        ExperimentalSetStatsAggregatorDataset ExperimentalSleepDataset ExperimentalSlidingWindowDataset
        ExperimentalSqlDataset ExperimentalStatsAggregatorHandle ExperimentalStatsAggregatorSummary
        ExperimentalTakeWhileDataset ExperimentalThreadPoolDataset ExperimentalThreadPoolHandle
        ExperimentalUnbatchDataset ExperimentalUniqueDataset FilterByLastComponentDataset FilterDataset
        FinalizeDataset FixedLengthRecordDataset FixedLengthRecordDatasetV2 FlatMapDataset GeneratorDataset
        GlobalShuffleDataset GroupByReducerDataset GroupByWindowDataset IgnoreErrorsDataset IndexFlatMapDataset
        InterleaveDataset Iterator IteratorFromStringHandle IteratorFromStringHandleV2 IteratorGetDevice
        IteratorGetModelProto IteratorGetNext IteratorGetNextAsOptional IteratorGetNextSync IteratorToStringHandle
        IteratorV2 LMDBDataset LatencyStatsDataset LegacyParallelInterleaveDatasetV2 ListDataset
        ListSnapshotChunksDataset LoadDataset MakeIterator MapAndBatchDataset MapDataset MatchingFilesDataset
        MaxIntraOpParallelismDataset ModelDataset MultiDeviceIterator MultiDeviceIteratorFromStringHandle
        MultiDeviceIteratorGetNextFromShard MultiDeviceIteratorInit MultiDeviceIteratorToStringHandle
        NonSerializableDataset OneShotIterator OptimizeDataset OptimizeDatasetV2 OptionsDataset PaddedBatchDataset
        PaddedBatchDatasetV2 ParallelBatchDataset ParallelFilterDataset ParallelInterleaveDataset
        ParallelInterleaveDatasetV2 ParallelInterleaveDatasetV3 ParallelInterleaveDatasetV4 ParallelMapDataset
        ParallelMapDatasetV2 ParseExampleDataset ParseExampleDatasetV2 PrefetchDataset PrivateThreadPoolDataset
        RandomDataset RandomDatasetV2 RangeDataset RebatchDataset RebatchDatasetV2 ReduceDataset RegisterDataset
        RegisterDatasetV2 RepeatDataset RewriteDataset SamplingDataset SaveDataset SaveDatasetV2 ScanDataset
        SerializeIterator SetStatsAggregatorDataset ShardDataset ShuffleAndRepeatDataset ShuffleAndRepeatDatasetV2
        ShuffleDataset ShuffleDatasetV2 ShuffleDatasetV3 SkipDataset SleepDataset SlidingWindowDataset
        SnapshotChunkDataset SnapshotDataset SnapshotDatasetReader SnapshotDatasetV2 SnapshotNestedDatasetReader
        SparseTensorSliceDataset SqlDataset StatsAggregatorHandle StatsAggregatorHandleV2
        StatsAggregatorSetSummaryWriter StatsAggregatorSummary TFRecordDataset TFRecordDatasetV2 TakeDataset
        TakeWhileDataset TensorDataset TensorSliceDataset TextLineDataset ThreadPoolDataset ThreadPoolHandle
        UnbatchDataset UniqueDataset UnwrapDatasetVariant WeightedFlatMapDataset WindowDataset WrapDatasetVariant
        ZipDataset
    """,
    "image": """
        AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation CombinedNonMaxSuppression CropAndResize
        CropAndResizeGradBoxes CropAndResizeGradImage DecodeAndCropJpeg DecodeBmp DecodeGif DecodeImage DecodeJpeg
        DecodeJxl DecodePng DecodeWebP DrawBoundingBoxes DrawBoundingBoxesV2 EncodeJpeg EncodeJpegVariableQuality
        EncodePng ExtractGlimpse ExtractGlimpseV2 ExtractJpegShape GenerateBoundingBoxProposals HSVToRGB
        ImageProjectiveTransformV2 ImageProjectiveTransformV3 NonMaxSuppression NonMaxSuppressionV2
        NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps RGBToHSV RandomCrop
        ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor
        ResizeNearestNeighborGrad SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 ScaleAndTranslate
        ScaleAndTranslateGrad StatelessSampleDistortedBoundingBox
    """,
    "io": """
        FixedLengthRecordReader FixedLengthRecordReaderV2 GenerateVocabRemapping IdentityReader IdentityReaderV2
        LMDBReader LoadAndRemapMatrix MatchingFiles MergeV2Checkpoints ReadFile ReaderNumRecordsProduced
        ReaderNumRecordsProducedV2 ReaderNumWorkUnitsCompleted ReaderNumWorkUnitsCompletedV2 ReaderRead ReaderReadUpTo
        ReaderReadUpToV2 ReaderReadV2 ReaderReset ReaderResetV2 ReaderRestoreState ReaderRestoreStateV2
        ReaderSerializeState ReaderSerializeStateV2 Restore RestoreSlice RestoreV2 Save SaveSlices SaveV2
        ShardedFilename ShardedFilespec Skipgram TFRecordReader TFRecordReaderV2 TextLineReader TextLineReaderV2
        WholeFileReader WholeFileReaderV2 WriteFile
    """,
    "linalg": """
        BandedTriangularSolve BatchCholesky BatchCholeskyGrad BatchMatrixBandPart BatchMatrixDeterminant
        BatchMatrixDiag BatchMatrixDiagPart BatchMatrixInverse BatchMatrixSetDiag BatchMatrixSolve BatchMatrixSolveLs
        BatchMatrixTriangularSolve BatchSelfAdjointEig BatchSelfAdjointEigV2 BatchSvd Cholesky CholeskyGrad Diag
        DiagPart Eig LogMatrixDeterminant Lu MatrixBandPart MatrixDeterminant MatrixDiag MatrixDiagPart
        MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixExponential MatrixInverse MatrixLogarithm
        MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixSolve MatrixSolveLs MatrixSquareRoot MatrixTriangularSolve
        Qr SelfAdjointEig SelfAdjointEigV2 Svd TridiagonalMatMul TridiagonalSolve
    """,
    "list": """
        EmptyTensorList EmptyTensorMap TensorListConcat TensorListConcatLists TensorListConcatV2
        TensorListElementShape TensorListFromTensor TensorListGather TensorListGetItem TensorListLength
        TensorListPopBack TensorListPushBack TensorListPushBackBatch TensorListReserve TensorListResize
        TensorListScatter TensorListScatterIntoExistingList TensorListScatterV2 TensorListSetItem TensorListSplit
        TensorListStack TensorMapErase TensorMapHasKey TensorMapInsert TensorMapLookup TensorMapSize
        TensorMapStackKeys
    """,
    "logging": """
        Assert AudioSummary AudioSummaryV2 CloseSummaryWriter CreateSummaryDbWriter CreateSummaryFileWriter
        FlushSummaryWriter HistogramSummary ImageSummary ImportEvent MergeSummary Print PrintV2 ScalarSummary
        SummaryWriter TensorSummary TensorSummaryV2 Timestamp WriteAudioSummary WriteGraphSummary
        WriteHistogramSummary WriteImageSummary WriteRawProtoSummary WriteScalarSummary WriteSummary
    """,
    "lookup": """
        AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable AnonymousMutableHashTableOfTensors
        HashTable HashTableV2 InitializeTable InitializeTableFromTextFile InitializeTableFromTextFileV2
        InitializeTableV2 LookupTableExport LookupTableExportV2 LookupTableFind LookupTableFindV2 LookupTableImport
        LookupTableImportV2 LookupTableInsert LookupTableInsertV2 LookupTableRemoveV2 LookupTableSize
        LookupTableSizeV2 MutableDenseHashTable MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors
        MutableHashTableOfTensorsV2 MutableHashTableV2
    """,
    "math": """
        Abs AccumulateNV2 Acos Acosh Add AddN AddV2 All Angle Any ApproximateEqual ArgMax ArgMin Asin Asinh Atan Atan2
        Atanh BatchMatMul BatchMatMulV2 BatchMatMulV3 BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0
        BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Betainc Bincount Bitcast BitwiseAnd BitwiseOr BitwiseXor
        Bucketize Cast Ceil ClipByValue Complex ComplexAbs Conj Cos Cosh Cross Cumprod Cumsum CumulativeLogsumexp
        Dawsn DenseBincount Digamma Div DivNoNan Einsum Equal Erf Erfc Erfinv EuclideanNorm Exp Expint Expm1 Floor
        FloorDiv FloorMod FresnelCos FresnelSin Greater GreaterEqual HistogramFixedWidth Igamma IgammaGradA Igammac
        Imag Inv InvGrad Invert IsFinite IsInf IsNan KMC2ChainInitialization KmeansPlusPlusInitialization L2Loss
        LeftShift Less LessEqual Lgamma LinSpace Log Log1p LogicalAnd LogicalNot LogicalOr LowerBound MatMul Max
        Maximum Mean Min Minimum Mod Mul MulNoNan Ndtri NearestNeighbors Neg NextAfter NotEqual Polygamma
        PopulationCount Pow Prod Range Real RealDiv Reciprocal ReciprocalGrad RightShift Rint Round Rsqrt RsqrtGrad
        SegmentMax SegmentMaxV2 SegmentMean SegmentMin SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2
        Select SelectV2 Sigmoid SigmoidGrad Sign Sin Sinh SobolSample SparseMatMul SparseSegmentMean
        SparseSegmentMeanGrad SparseSegmentMeanGradV2 SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
        SparseSegmentSqrtNGrad SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments SparseSegmentSum
        SparseSegmentSumGrad SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments Spence Sqrt SqrtGrad Square
        SquaredDifference Sub Sum Tan Tanh TanhGrad TruncateDiv TruncateMod UnsortedSegmentMax UnsortedSegmentMin
        UnsortedSegmentProd UnsortedSegmentSum UpperBound Xdivy Xlog1py Xlogy Zeta _FusedMatMul _HostCast _SumToShape
        _UnaryOpsComposition
    """,
    "nn": """
        ApproxTopK AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BatchNormWithGlobalNormalization
        BatchNormWithGlobalNormalizationGrad BiasAdd BiasAddGrad BiasAddV1 CTCBeamSearchDecoder CTCGreedyDecoder
        CTCLoss CTCLossV2 Conv Conv2D Conv2DBackpropFilter Conv2DBackpropFilterV2 Conv2DBackpropInput
        Conv2DBackpropInputV2 Conv3D Conv3DBackpropFilter Conv3DBackpropFilterV2 Conv3DBackpropInput
        Conv3DBackpropInputV2 DataFormatDimMap DataFormatVecPermute DepthwiseConv2dNative
        DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput Dilation2D Dilation2DBackpropFilter
        Dilation2DBackpropInput Elu EluGrad FractionalAvgPool FractionalAvgPoolGrad FractionalMaxPool
        FractionalMaxPoolGrad FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3
        FusedBatchNormV2 FusedBatchNormV3 FusedPadConv2D FusedResizeAndPadConv2D InTopK InTopKV2 IsotonicRegression
        LRN LRNGrad LeakyRelu LeakyReluGrad LogSoftmax MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad
        MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradGradWithArgmax MaxPoolGradV2 MaxPoolGradWithArgmax MaxPoolV2
        MaxPoolWithArgmax NthElement Relu Relu6 Relu6Grad ReluGrad Selu SeluGrad Softmax SoftmaxCrossEntropyWithLogits
        Softplus SoftplusGrad Softsign SoftsignGrad SparseSoftmaxCrossEntropyWithLogits TopK TopKV2 _FusedBatchNormEx
        _FusedBatchNormGradEx _FusedConv2D _FusedConv3D _FusedDepthwiseConv2dNative
    """,
    "parsing": """
        DecodeCSV DecodeCompressed DecodeJSONExample DecodePaddedRaw DecodeProtoV2 DecodeRaw EncodeProto ParseExample
        ParseExampleV2 ParseSequenceExample ParseSequenceExampleV2 ParseSingleExample ParseSingleSequenceExample
        ParseTensor SerializeTensor StringToNumber
    """,
    "quantize": """
        Dequantize FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVars
        FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannel FakeQuantWithMinMaxVarsPerChannelGradient
        QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4
        QuantizeAndDequantizeV4Grad QuantizeDownAndShrinkRange QuantizeV2 QuantizedAdd QuantizedAvgPool
        QuantizedBatchNormWithGlobalNormalization QuantizedBiasAdd QuantizedConcat QuantizedConv2D
        QuantizedConv2DAndRelu QuantizedConv2DAndReluAndRequantize QuantizedConv2DAndRequantize
        QuantizedConv2DPerChannel QuantizedConv2DWithBias QuantizedConv2DWithBiasAndRelu
        QuantizedConv2DWithBiasAndReluAndRequantize QuantizedConv2DWithBiasAndRequantize
        QuantizedConv2DWithBiasSignedSumAndReluAndRequantize QuantizedConv2DWithBiasSumAndRelu
        QuantizedConv2DWithBiasSumAndReluAndRequantize QuantizedDepthwiseConv2D QuantizedDepthwiseConv2DWithBias
        QuantizedDepthwiseConv2DWithBiasAndRelu QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize
        QuantizedInstanceNorm QuantizedMatMul QuantizedMatMulWithBias QuantizedMatMulWithBiasAndDequantize
        QuantizedMatMulWithBiasAndRelu QuantizedMatMulWithBiasAndReluAndRequantize
        QuantizedMatMulWithBiasAndRequantize QuantizedMaxPool QuantizedMul QuantizedRelu QuantizedRelu6 QuantizedReluX
        QuantizedReshape QuantizedResizeBilinear RequantizationRange RequantizationRangePerChannel Requantize
        RequantizePerChannel UniformDequantize UniformQuantize UniformQuantizedAdd UniformQuantizedClipByValue
        UniformQuantizedConvolution UniformQuantizedConvolutionHybrid UniformQuantizedDot UniformQuantizedDotHybrid
        UniformRequantize
    """,
    "ragged": """
        CompositeTensorVariantFromComponents CompositeTensorVariantToComponents RaggedCross RaggedGather RaggedRange
        RaggedTensorFromVariant RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant
        RaggedTensorToVariantGradient
    """,
    "random": """
        AllCandidateSampler ComputeAccidentalHits FixedUnigramCandidateSampler LearnedUnigramCandidateSampler
        LogUniformCandidateSampler Multinomial NonDeterministicInts ParameterizedTruncatedNormal RandomGamma
        RandomGammaGrad RandomIndexShuffle RandomPoisson RandomPoissonV2 RandomShuffle RandomStandardNormal
        RandomUniform RandomUniformInt RngReadAndSkip RngSkip StatefulRandomBinomial StatefulStandardNormal
        StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt
        StatelessMultinomial StatelessParameterizedTruncatedNormal StatelessRandomBinomial StatelessRandomGammaV2
        StatelessRandomGammaV3 StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg
        StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomPoisson StatelessRandomUniform
        StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2 StatelessRandomUniformInt
        StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessShuffle StatelessTruncatedNormal
        StatelessTruncatedNormalV2 ThreadUnsafeUnigramCandidateSampler TruncatedNormal UniformCandidateSampler
    """,
    "rnn": """
        BlockLSTM BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2
        CudnnRNNBackpropV3 CudnnRNNCanonicalToParams CudnnRNNCanonicalToParamsV2 CudnnRNNParamsSize
        CudnnRNNParamsToCanonical CudnnRNNParamsToCanonicalV2 CudnnRNNV2 CudnnRNNV3 GRUBlockCell GRUBlockCellGrad
        LSTMBlockCell LSTMBlockCellGrad _GRULoop _LSTMLoop
    """,
    "sparse": """
        AddManySparseToTensorsMap AddSparseToTensorsMap CSRSparseMatrixComponents CSRSparseMatrixToDense
        CSRSparseMatrixToSparseTensor DenseCountSparseOutput DenseToCSRSparseMatrix DenseToDenseSetOperation
        DenseToSparseSetOperation DeserializeManySparse DeserializeSparse RaggedBincount RaggedCountSparseOutput
        RaggedFillEmptyRows RaggedFillEmptyRowsGrad SerializeManySparse SerializeSparse SetSize SparseAdd
        SparseAddGrad SparseBincount SparseConcat SparseCountSparseOutput SparseCross SparseCrossHashed SparseCrossV2
        SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul SparseFillEmptyRows SparseFillEmptyRowsGrad
        SparseMatrixAdd SparseMatrixMatMul SparseMatrixMul SparseMatrixNNZ SparseMatrixOrderingAMD SparseMatrixSoftmax
        SparseMatrixSoftmaxGrad SparseMatrixSparseCholesky SparseMatrixSparseMatMul SparseMatrixTranspose
        SparseMatrixZeros SparseReduceMax SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse SparseReorder
        SparseReshape SparseSlice SparseSliceGrad SparseSoftmax SparseSparseMaximum SparseSparseMinimum SparseSplit
        SparseTensorDenseAdd SparseTensorDenseMatMul SparseTensorToCSRSparseMatrix SparseToDense
        SparseToSparseSetOperation TakeManySparseFromTensorsMap
    """,
    "spectral": """
        BatchFFT BatchFFT2D BatchFFT3D BatchIFFT BatchIFFT2D BatchIFFT3D FFT FFT2D FFT3D FFTND IFFT IFFT2D IFFT3D
        IFFTND IRFFT IRFFT2D IRFFT3D IRFFTND RFFT RFFT2D RFFT3D RFFTND
    """,
    "state": """
        Assign AssignAdd AssignAddVariableOp AssignSub AssignSubVariableOp AssignVariableOp ConsumeMutexLock CountUpTo
        DestroyResourceOp DestroyTemporaryVariable DisableCopyOnRead IsVariableInitialized MutexLock MutexV2
        ReadVariableOp ResourceCountUpTo ResourceGather ResourceGatherNd ResourceScatterAdd ResourceScatterDiv
        ResourceScatterMax ResourceScatterMin ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax
        ResourceScatterNdMin ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate
        ResourceStridedSliceAssign ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNdAdd ScatterNdMax
        ScatterNdMin ScatterNdSub ScatterNdUpdate ScatterSub ScatterUpdate StridedSliceAssign TemporaryVariable
        VarHandleOp VarIsInitializedOp Variable VariableShape VariableV2 _ReadVariablesOp _VarHandlesOp
    """,
    "string": """
        AsString DecodeBase64 EncodeBase64 ReduceJoin RegexFullMatch RegexReplace StaticRegexFullMatch
        StaticRegexReplace StringFormat StringJoin StringLength StringLower StringNGrams StringSplit StringSplitV2
        StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong StringUpper Substr
        UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript UnicodeTranscode UnsortedSegmentJoin
        _TensorToHashBucketFast
    """,
    "training": """
        ApplyAdaMax ApplyAdadelta ApplyAdagrad ApplyAdagradDA ApplyAdagradV2 ApplyAdam ApplyAddSign
        ApplyCenteredRMSProp ApplyFtrl ApplyFtrlV2 ApplyGradientDescent ApplyMomentum ApplyPowerSign
        ApplyProximalAdagrad ApplyProximalGradientDescent ApplyRMSProp ResourceApplyAdaMax ResourceApplyAdadelta
        ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam
        ResourceApplyAdamWithAmsgrad ResourceApplyAddSign ResourceApplyCenteredRMSProp ResourceApplyFtrl
        ResourceApplyFtrlV2 ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum
        ResourceApplyPowerSign ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent ResourceApplyRMSProp
        ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA
        ResourceSparseApplyAdagradV2 ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl
        ResourceSparseApplyFtrlV2 ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum
        ResourceSparseApplyProximalAdagrad ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp
        SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradDA SparseApplyAdagradV2 SparseApplyCenteredRMSProp
        SparseApplyFtrl SparseApplyFtrlV2 SparseApplyMomentum SparseApplyProximalAdagrad
        SparseApplyProximalGradientDescent SparseApplyRMSProp
    """,
}
