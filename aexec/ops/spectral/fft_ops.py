"""Fourier transforms."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.spectral import fft_shapes as shapes

register_op(
    "BatchFFT(input: complex64) -> output: complex64",
    deprecated=(15, "Use FFT"), shape_fn=common.unknown_shape,
)
register_op(
    "BatchFFT2D(input: complex64) -> output: complex64",
    deprecated=(15, "Use FFT2D"), shape_fn=common.unknown_shape,
)
register_op(
    "BatchFFT3D(input: complex64) -> output: complex64",
    deprecated=(15, "Use FFT3D"), shape_fn=common.unknown_shape,
)
register_op(
    "BatchIFFT(input: complex64) -> output: complex64",
    deprecated=(15, "Use IFFT"), shape_fn=common.unknown_shape,
)
register_op(
    "BatchIFFT2D(input: complex64) -> output: complex64",
    deprecated=(15, "Use IFFT2D"), shape_fn=common.unknown_shape,
)
register_op(
    "BatchIFFT3D(input: complex64) -> output: complex64",
    deprecated=(15, "Use IFFT3D"), shape_fn=common.unknown_shape,
)
register_op(
    "FFT(input: Tcomplex) -> output: Tcomplex",
    "Tcomplex: {complex64, complex128} = complex64", shape_fn=common.unchanged_vector_or_more,
)
register_op(
    "FFT2D(input: Tcomplex) -> output: Tcomplex",
    "Tcomplex: {complex64, complex128} = complex64", shape_fn=common.unchanged_matrix_or_more,
)
register_op(
    "FFT3D(input: Tcomplex) -> output: Tcomplex",
    "Tcomplex: {complex64, complex128} = complex64", shape_fn=common.unchanged_volume_or_more,
)
register_op(
    "FFTND(input: Tcomplex, fft_length: int32, axes: int32) -> output: Tcomplex",
    "Tcomplex: {complex64, complex128} = complex64", shape_fn=common.unchanged_vector_or_more,
)
register_op(
    "IFFT(input: Tcomplex) -> output: Tcomplex",
    "Tcomplex: {complex64, complex128} = complex64", shape_fn=common.unchanged_vector_or_more,
)
register_op(
    "IFFT2D(input: Tcomplex) -> output: Tcomplex",
    "Tcomplex: {complex64, complex128} = complex64", shape_fn=common.unchanged_matrix_or_more,
)
register_op(
    "IFFT3D(input: Tcomplex) -> output: Tcomplex",
    "Tcomplex: {complex64, complex128} = complex64", shape_fn=common.unchanged_volume_or_more,
)
register_op(
    "IFFTND(input: Tcomplex, fft_length: int32, axes: int32) -> output: Tcomplex",
    "Tcomplex: {complex64, complex128} = complex64", shape_fn=common.unchanged_vector_or_more,
)
register_op(
    "IRFFT(input: Tcomplex, fft_length: int32) -> output: Treal",
    "Treal: {float, double} = float", "Tcomplex: {complex64, complex128} = complex64", shape_fn=shapes.irfft_1d,
)
register_op(
    "IRFFT2D(input: Tcomplex, fft_length: int32) -> output: Treal",
    "Treal: {float, double} = float", "Tcomplex: {complex64, complex128} = complex64", shape_fn=shapes.irfft_2d,
)
register_op(
    "IRFFT3D(input: Tcomplex, fft_length: int32) -> output: Treal",
    "Treal: {float, double} = float", "Tcomplex: {complex64, complex128} = complex64", shape_fn=shapes.irfft_3d,
)
register_op(
    "IRFFTND(input: Tcomplex, fft_length: int32, axes: int32) -> output: Treal",
    "Treal: {float, double} = float", "Tcomplex: {complex64, complex128} = complex64",
    shape_fn=common.unchanged_vector_or_more,
)
register_op(
    "RFFT(input: Treal, fft_length: int32) -> output: Tcomplex",
    "Treal: {float, double} = float", "Tcomplex: {complex64, complex128} = complex64", shape_fn=shapes.rfft_1d,
)
register_op(
    "RFFT2D(input: Treal, fft_length: int32) -> output: Tcomplex",
    "Treal: {float, double} = float", "Tcomplex: {complex64, complex128} = complex64", shape_fn=shapes.rfft_2d,
)
register_op(
    "RFFT3D(input: Treal, fft_length: int32) -> output: Tcomplex",
    "Treal: {float, double} = float", "Tcomplex: {complex64, complex128} = complex64", shape_fn=shapes.rfft_3d,
)
register_op(
    "RFFTND(input: Treal, fft_length: int32, axes: int32) -> output: Tcomplex",
    "Treal: {float, double} = float", "Tcomplex: {complex64, complex128} = complex64",
    shape_fn=common.unchanged_vector_or_more,
)
