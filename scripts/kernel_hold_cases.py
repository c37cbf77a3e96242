"""Heavy kernels for which there is no plain NumPy expression: what else the hold benchmark runs in worker threads.

Strings, files' formats, images, sparse and ragged tensors, special functions, random numbers.
Next to read: `hold_benchmarks.py`.
"""

from __future__ import annotations

import io
import wave
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from kernel_cases import Case, Data

from aexec import proto
from aexec.framework.wire import tensor_codec

__all__ = ["cases"]


def _words(count: int) -> Any:
    rng = np.random.default_rng(0)
    words = np.empty(count, object)
    words[:] = [b"word-%d, of %x" % (i, j) for i, j in enumerate(rng.integers(0, 1 << 40, count).tolist())]
    return words


def _few(d: Data, share: int) -> int:
    """Return the number of elements if each costs as much as `share` ordinary ones."""
    return max(1, d.n // share)


def _case(op: str, inputs: Callable[[Data], list[Any]], *, note: str = "", **attrs: Any) -> Case:
    return Case(op, inputs, None, attrs, note)


def _strings() -> Iterator[Case]:
    def words(d: Data) -> Any:
        return _words(_few(d, 20))

    yield _case("AsString", lambda d: [d.real(_few(d, 20))])
    yield _case("StringToNumber", lambda d: [np.array([b"%g" % v for v in d.real(_few(d, 20)).tolist()], object)])
    for op in ("StringLower", "StringUpper", "StringStrip", "StringLength", "EncodeBase64", "StringToHashBucketFast"):
        attrs = {"num_buckets": 1000} if op == "StringToHashBucketFast" else {}
        yield _case(op, lambda d: [words(d)], **attrs)
    yield _case("StringToHashBucketStrong", lambda d: [words(d)], num_buckets=1000, key=[1, 2])
    yield _case("StringJoin", lambda d: [[words(d), words(d)]], separator=" ")
    yield _case("ReduceJoin", lambda d: [words(d), 0])
    yield _case("StringSplitV2", lambda d: [words(d), b" "])
    yield _case("StringSplit", lambda d: [words(d), b" ,"])
    yield _case("StringNGrams", lambda d: [(w := words(d)), np.array([0, len(w)])], separator=" ", ngram_widths=[2],
                left_pad="", right_pad="", pad_width=0, preserve_short_sequences=False)  # fmt: skip
    yield _case("Substr", lambda d: [words(d), 1, 3])
    yield _case("StaticRegexReplace", lambda d: [words(d)], pattern="w(or)d", rewrite=r"\1")
    yield _case("StaticRegexFullMatch", lambda d: [words(d)], pattern="word.*of.*")
    yield _case("UnicodeDecode", lambda d: [words(d)], input_encoding="UTF-8")
    yield _case("UnicodeTranscode", lambda d: [words(d)], input_encoding="UTF-8", output_encoding="UTF-16-BE")
    yield _case("UnsortedSegmentJoin", lambda d: [(w := words(d)), np.arange(len(w)) % 100, 100])
    for op in ("UniqueV2", "Unique"):
        axis = [np.zeros(0, np.int32)] if op == "UniqueV2" else []
        yield _case(op, lambda d, a=axis: [words(d), *a], note="strings")
    yield _case("GatherV2", lambda d: [(w := words(d)), np.arange(len(w))[::-1], 0], note="strings")
    yield _case("ConcatV2", lambda d: [[words(d), words(d)], 0], note="strings")
    yield _case("Equal", lambda d: [words(d), words(d)], note="strings")
    yield _case("Fingerprint", lambda d: [d.ints(_few(d, 4), 4), b"farmhash64"])


def _formats() -> Iterator[Case]:
    yield _case("DecodeCSV", lambda d: [_words(_few(d, 20)), [np.array([b"x"], object), np.array([b"y"], object)]],
                OUT_TYPE=["string", "string"])  # fmt: skip
    yield _case("DecodeRaw", lambda d: [np.array([d.real().tobytes()], object)], out_type="float32")
    yield _case("DecodeRaw", lambda d: [np.array([d.real().tobytes()], object)], note="big endian",
                out_type="float32", little_endian=False)  # fmt: skip
    yield _case("SerializeTensor", lambda d: [d.real()])
    yield _case("ParseTensor", lambda d: [_tensor_bytes(d.n)], out_type="float32")
    yield _case("DecodeCompressed", lambda d: [_compressed(d.n)], compression_type="ZLIB")

    def examples(d: Data) -> list[Any]:
        example = proto.Example()
        example.features.feature["x"].float_list.value.extend(range(100))
        records = np.array([example.SerializeToString()] * _few(d, 400), object)
        return [records, np.zeros(0, object), np.zeros(0, object), np.array([b"x"], object), np.zeros(0, object),
                [np.zeros(0, np.float32)]]  # fmt: skip

    yield _case("ParseExampleV2", examples, dense_shapes=[[100]], num_sparse=0, sparse_types=[],
                ragged_value_types=[], ragged_split_types=[])  # fmt: skip
    for op, form in (("EncodePng", "PNG"), ("EncodeJpeg", "JPEG")):
        yield _case(op, lambda d: [_picture(d.side)])
        yield _case(op.replace("Encode", "Decode"), lambda d, f=form: [_picture_bytes(d.side, f)])
    yield _case("DecodeBmp", lambda d: [_picture_bytes(d.side, "BMP")])
    yield _case("DecodeGif", lambda d: [_picture_bytes(d.side, "GIF")])
    yield _case("DecodeWebP", lambda d: [_picture_bytes(d.side, "WEBP")])
    yield _case("EncodeWav", lambda d: [np.clip(d.real(d.n, 1), -1, 1), 16000])
    yield _case("DecodeWav", lambda d: [_wav_bytes(d.n)])
    yield _case("AudioSpectrogram", lambda d: [d.real(_few(d, 4), 1)], window_size=512, stride=256)


def _images() -> Iterator[Case]:
    for op in ("ResizeBilinear", "ResizeBicubic", "ResizeArea"):
        yield _case(op, lambda d: [d.image(4), [300, 300]])
    yield _case("ResizeBilinear", lambda d: [d.image(4), [2000, 2000]], note="larger")
    yield _case("ScaleAndTranslate", lambda d: [d.image(4), [300, 300], [0.5, 0.5], [0.0, 0.0]])
    yield _case("CropAndResize", lambda d: [d.image(4), d.unit(20, 4), np.zeros(20, np.int32), [200, 200]])
    yield _case("RGBToHSV", lambda d: [d.image(3)])
    yield _case("HSVToRGB", lambda d: [np.abs(d.image(3)) % 1])
    yield _case("AdjustHue", lambda d: [d.image(3), 0.1])
    yield _case("AdjustSaturation", lambda d: [d.image(3), 0.1])
    yield _case("NonMaxSuppressionV3", lambda d: [d.unit(_few(d, 400), 4), d.unit(_few(d, 400)), 1000, 0.5, 0.1])
    yield _case("ImageProjectiveTransformV2", lambda d: [d.image(4), np.array([[1, 0.1, 0, 0.1, 1, 0, 0, 0]],
                np.float32), [500, 500]], interpolation="BILINEAR")  # fmt: skip
    yield _case("ExtractGlimpse", lambda d: [d.image(4), [200, 200], np.zeros((1, 2), np.float32)])
    yield _case("DrawBoundingBoxesV2", lambda d: [d.image(4), d.unit(1, 50, 4), d.unit(3, 4)])


def _special() -> Iterator[Case]:
    for op in ("Erf", "Erfc", "Erfinv", "Lgamma", "Digamma", "BesselI0", "BesselJ0", "BesselK0", "Dawsn", "Expint",
               "FresnelCos", "Ndtri", "Spence"):  # fmt: skip
        yield _case(op, lambda d: [d.unit()])
    for op in ("Igamma", "Igammac", "Zeta", "IgammaGradA", "RandomGammaGrad"):
        yield _case(op, lambda d: [d.above(_few(d, 10)), d.above(_few(d, 10))])
    yield _case("Polygamma", lambda d: [np.ones(_few(d, 10), np.float32), d.above(_few(d, 10))])
    yield _case("Betainc", lambda d: [d.above(_few(d, 10)), d.above(_few(d, 10)), d.unit(_few(d, 10))])


def _random() -> Iterator[Case]:
    seed = np.array([1, 2])
    for op in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
        yield _case(op, lambda d: [[d.n]], dtype="float32", seed=1)
    yield _case("RandomUniformInt", lambda d: [[d.n], 0, 10], seed=1)
    yield _case("RandomShuffle", lambda d: [d.real()], seed=1)
    yield _case("RandomShuffle", lambda d: [d.matrix()], seed=1, note="rows")
    yield _case("RandomGamma", lambda d: [[_few(d, 10)], d.above(1)], seed=1)
    yield _case("RandomPoissonV2", lambda d: [[_few(d, 10)], d.above(1)], seed=1)
    yield _case("Multinomial", lambda d: [d.real(4, 100), _few(d, 40)], seed=1)
    for op in ("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"):
        yield _case(op, lambda d: [[d.n], seed], dtype="float32")
    yield _case("StatelessRandomBinomial", lambda d: [[_few(d, 10)], seed, np.float32(10), np.float32(0.5)])
    yield _case("ParameterizedTruncatedNormal", lambda d: [[1, _few(d, 10)], *(np.array([v], np.float32)
                for v in (0, 1, -1, 1))], seed=1)  # fmt: skip


def _linear_algebra() -> Iterator[Case]:
    def square(d: Data) -> Any:
        side = d.side // 4 + 1
        a = d.real(side, side)
        return a @ a.T + side * np.eye(side, dtype=np.float32)

    for op in ("Lu", "Eig", "MatrixExponential", "LogMatrixDeterminant", "CholeskyGrad"):
        attrs = {"Tout": "complex64"} if op == "Eig" else {}
        yield _case(op, lambda d, two=op == "CholeskyGrad": [square(d), square(d)] if two else [square(d)], **attrs)
    yield _case("MatrixTriangularSolve", lambda d: [square(d), square(d)])
    yield _case("MatrixSolveLs", lambda d: [square(d), square(d), np.float64(0)], fast=False)
    yield _case("TridiagonalSolve", lambda d: [3 + d.unit(3, d.n // 4), d.real(d.n // 4, 1)])
    yield _case("MatMul", lambda d: [d.ints(d.side // 4, d.side // 4)] * 2, note="int32")
    yield _case("MatMul", lambda d: [d.real(d.side // 4, d.side // 4).astype(np.float16)] * 2, note="float16")


def _sparse() -> Iterator[Case]:
    def coordinates(d: Data, count: int) -> Any:
        flat = np.sort(d.rng.choice(d.side * d.side, count, replace=False))
        return np.stack(np.divmod(flat, d.side), 1)

    def parts(d: Data, seed: int = 0) -> list[Any]:
        d.rng = np.random.default_rng(seed)
        count = d.n // 10
        return [coordinates(d, count), d.real(count), np.array([d.side, d.side])]

    yield _case("SparseReorder", lambda d: [(p := parts(d))[0][::-1].copy(), *p[1:]])
    yield _case("SparseReshape", lambda d: [(p := parts(d))[0], p[2], np.array([-1])])
    yield _case("SparseAdd", lambda d: [*parts(d), *parts(d, 1), np.float32(0)])
    yield _case("SparseTensorDenseMatMul", lambda d: [*parts(d), d.real(d.side, 20)])
    yield _case("SparseTensorDenseAdd", lambda d: [*parts(d), d.matrix()])
    yield _case("SparseDenseCwiseMul", lambda d: [*parts(d), d.matrix()])
    yield _case("SparseReduceSum", lambda d: [*parts(d), [1]])
    yield _case("SparseSoftmax", lambda d: parts(d))
    yield _case("SparseFillEmptyRows", lambda d: [*parts(d), np.float32(0)])
    yield _case("SparseSlice", lambda d: [*parts(d), np.array([1, 1]), np.array([d.side // 2] * 2)])
    yield _case("SparseConcat", lambda d: [*([a, a] for a in parts(d))], concat_dim=0)
    yield _case("SparseSplit", lambda d: [np.int64(0), *parts(d)], num_split=4)
    yield _case("SparseSparseMaximum", lambda d: [*parts(d), *parts(d, 1)])
    yield _case("SerializeSparse", lambda d: parts(d))
    yield _case("SparseBincount", lambda d: [(p := parts(d))[0], p[0][:, 0].copy(), p[2], np.int64(d.side),
                np.zeros(0, np.float32)])  # fmt: skip
    yield _case("DenseToDenseSetOperation", lambda d: [d.ints(d.side, 100), d.ints(d.side, 100)],
                set_operation="a-b")  # fmt: skip
    yield _case("SparseCrossHashed", lambda d: [[], [], [], [d.ints(_few(d, 100), 1, dtype=np.int64)] * 2, 100, True,
                np.array([1, 2])])  # fmt: skip
    yield _case("RaggedRange", lambda d: [np.zeros(d.side, np.int32), np.full(d.side, d.side, np.int32), 1])
    yield _case("RaggedGather", lambda d: [[np.arange(0, d.n + 1, 10)], d.real(d.n // 10 * 10),
                d.ints(d.side, low=0, high=d.n // 10)], OUTPUT_RAGGED_RANK=1)  # fmt: skip
    yield _case("RaggedTensorToTensor", lambda d: [np.array([-1, -1]), d.real(d.n // 10 * 10), np.float32(0),
                [np.arange(0, d.n + 1, 10)]], row_partition_types=["ROW_SPLITS"])  # fmt: skip


def _networks() -> Iterator[Case]:
    def logits(d: Data) -> Any:
        return d.real(_few(d, 1600), 8, 30)

    def lengths(d: Data) -> Any:
        return np.full(8, _few(d, 1600), np.int32)

    yield _case("CTCGreedyDecoder", lambda d: [logits(d), lengths(d)])
    yield _case("CTCBeamSearchDecoder", lambda d: [logits(d)[:50], np.full(8, min(50, _few(d, 1600)), np.int32)],
                beam_width=10, top_paths=1)  # fmt: skip
    yield _case("CTCLoss", lambda d: [logits(d), np.stack(np.divmod(np.arange(80), 10), 1),
                d.ints(80, high=29), lengths(d)])  # fmt: skip
    yield _case("BlockLSTM", lambda d: [np.int64(20), d.real(20, 32, d.side // 16), *([d.real(32, 128)] * 2),
                d.real(d.side // 16 + 128, 512), *([d.real(128)] * 3), d.real(512)])  # fmt: skip
    yield _case("Dilation2D", lambda d: [d.image(), d.real(3, 3, 16)], strides=[1] * 4, rates=[1] * 4, padding="SAME")
    yield _case("LRNGrad", lambda d: [d.image(), d.image(), d.image()])
    yield _case("IsotonicRegression", lambda d: [d.real(4, d.n // 16)])
    yield _case("EditDistance", lambda d: [*_sequences(d), *_sequences(d)])
    yield _case("TopKV2", lambda d: [d.matrix(), 10])
    yield _case("TopKV2", lambda d: [d.matrix(), d.side], note="all")
    yield _case("Conv3DBackpropFilterV2", lambda d: [(x := _volume(d)), np.array([3, 3, 3, 16, 16]), x],
                strides=[1] * 5, padding="SAME")  # fmt: skip
    same = {"strides": [1] * 4, "padding": "SAME"}
    yield _case("DepthwiseConv2dNativeBackpropFilter", lambda d: [d.image(), [3, 3, 16, 1], d.image()], **same)
    yield _case(
        "DepthwiseConv2dNativeBackpropInput", lambda d: [(x := d.image()).shape, d.real(3, 3, 16, 1), x], **same
    )


def _sequences(d: Data) -> list[Any]:
    count = _few(d, 200)
    return [np.stack(np.divmod(np.arange(count), 100), 1), d.ints(count, high=5, dtype=np.int64),
            np.array([count // 100 + 1, 100])]  # fmt: skip


def _volume(d: Data) -> Any:
    side = round((d.n / 64) ** (1 / 3))
    return d.real(1, side, side, side, 16)


def _picture(side: int) -> Any:
    return np.random.default_rng(0).integers(0, 255, (side, side, 3), np.uint8)


@cache
def _picture_bytes(side: int, form: str) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(_picture(side)).save(file, form, **({"lossless": True} if form == "WEBP" else {}))
    return file.getvalue()


def _wav_bytes(count: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, 16000, count, "NONE", ""))
        writer.writeframes(np.random.default_rng(0).integers(-9999, 9999, count, np.int16).tobytes())
    return file.getvalue()


def _tensor_bytes(count: int) -> bytes:
    return tensor_codec.to_proto(np.ones(count, np.float32)).SerializeToString()


def _compressed(count: int) -> Any:
    import zlib

    data = zlib.compress(np.random.default_rng(0).integers(0, 20, count, np.uint8).tobytes(), 1)
    array = np.empty(1, object)
    array[0] = data
    return array


def cases() -> Iterator[Case]:
    """Iterate over the cases of this module, which have no NumPy expression."""
    for family in (_strings, _formats, _images, _special, _random, _linear_algebra, _sparse, _networks):
        yield from family()
