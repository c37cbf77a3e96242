"""Linear algebra: factorisations, solvers, diagonals and bands."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common
from aexec.ops.linalg import linalg_shapes as shapes

ALIGNMENTS = "{'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'}"
LOGARITHM_TYPES = "{double, float, complex64, complex128}"
SOLVER_TYPES = "{double, float, half, complex64, complex128}"

register_op(
    "BandedTriangularSolve(matrix: T, rhs: T) -> output: T",
    "lower: bool = true", "adjoint: bool = false", f"T: {SOLVER_TYPES}", shape_fn=shapes.banded_triangular_solve,
)
register_op(
    "BatchCholesky(input: T) -> output: T",
    "T: {double, float}", deprecated=(13, "Use Cholesky instead."), shape_fn=shapes.square_matrices,
)
register_op(
    "BatchCholeskyGrad(l: T, grad: T) -> output: T",
    "T: {float, double}", deprecated=(13, "Use CholeskyGrad instead."), shape_fn=shapes.square_matrices,
)
register_op(
    "BatchMatrixBandPart(input: T, num_lower: int64, num_upper: int64) -> band: T",
    "T: type", deprecated=(14, "Use MatrixBandPart"), shape_fn=common.unknown_shape,
)
register_op(
    "BatchMatrixDeterminant(input: T) -> output: T",
    "T: {float, double, complex64, complex128}", deprecated=(13, "Use MatrixDeterminant instead."),
    shape_fn=common.unknown_shape,
)
register_op(
    "BatchMatrixDiag(diagonal: T) -> output: T",
    "T: type", deprecated=(14, "Use MatrixDiag"), shape_fn=common.unknown_shape,
)
register_op(
    "BatchMatrixDiagPart(input: T) -> diagonal: T",
    "T: type", deprecated=(14, "Use MatrixDiagPart"), shape_fn=common.unknown_shape,
)
register_op(
    "BatchMatrixInverse(input: T) -> output: T",
    "adjoint: bool = false", "T: {double, float}", deprecated=(13, "Use MatrixInverse instead."),
    shape_fn=shapes.square_matrices,
)
register_op(
    "BatchMatrixSetDiag(input: T, diagonal: T) -> output: T",
    "T: type", deprecated=(14, "Use MatrixSetDiag"), shape_fn=common.unknown_shape,
)
register_op(
    "BatchMatrixSolve(matrix: T, rhs: T) -> output: T",
    "adjoint: bool = false", "T: {double, float}", deprecated=(13, "Use MatrixSolve instead."),
    shape_fn=shapes.solve_square,
)
register_op(
    "BatchMatrixSolveLs(matrix: T, rhs: T, l2_regularizer: double) -> output: T",
    "T: {double, float}", "fast: bool = true", deprecated=(13, "Use MatrixSolveLs instead."),
    shape_fn=shapes.solve_least_squares,
)
register_op(
    "BatchMatrixTriangularSolve(matrix: T, rhs: T) -> output: T",
    "lower: bool = true", "adjoint: bool = false", "T: {double, float}",
    deprecated=(13, "Use MatrixTriangularSolve instead."), shape_fn=shapes.solve_square,
)
register_op(
    "BatchSelfAdjointEig(input: T) -> output: T",
    "T: {double, float}", deprecated=(11, "Use SelfAdjointEigV2 instead."), shape_fn=shapes.eigen_stacked,
)
register_op(
    "BatchSelfAdjointEigV2(input: T) -> e: T, v: T",
    "compute_v: bool = true", "T: {double, float}", deprecated=(13, "Use SelfAdjointEigV2 instead."),
    shape_fn=shapes.eigen,
)
register_op(
    "BatchSvd(input: T) -> s: T, u: T, v: T",
    "compute_uv: bool = true", "full_matrices: bool = false", f"T: {LOGARITHM_TYPES}",
    deprecated=(13, "Use Svd instead."), shape_fn=shapes.svd,
)
register_op("Cholesky(input: T) -> output: T", f"T: {SOLVER_TYPES}", shape_fn=shapes.square_matrices)
register_op("CholeskyGrad(l: T, grad: T) -> output: T", "T: {half, float, double}", shape_fn=shapes.square_matrices)
register_op(
    "Diag(diagonal: T) -> output: T",
    "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}", shape_fn=shapes.diag,
)
register_op(
    "DiagPart(input: T) -> diagonal: T",
    "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}", shape_fn=shapes.diag_part,
)
register_op(
    "Eig(input: T) -> e: Tout, v: Tout",
    "compute_v: bool = true", "T: {float, double, complex64, complex128}", "Tout: {complex64, complex128}",
    shape_fn=shapes.eigen,
)
register_op(
    "LogMatrixDeterminant(input: T) -> sign: T, log_abs_determinant: T",
    "T: {half, float, double, complex64, complex128}", shape_fn=shapes.determinant,
)
register_op(
    "Lu(input: T) -> lu: T, p: output_idx_type",
    f"T: {SOLVER_TYPES}", "output_idx_type: {int32, int64} = int32", shape_fn=shapes.lu,
)
register_op(
    "MatrixBandPart(input: T, num_lower: Tindex, num_upper: Tindex) -> band: T",
    "T: type", "Tindex: {int32, int64} = int64", shape_fn=common.unchanged_shape,
)
register_op(
    "MatrixDeterminant(input: T) -> output: T",
    "T: {half, float, double, complex64, complex128}", shape_fn=shapes.determinant,
)
register_op("MatrixDiag(diagonal: T) -> output: T", "T: type", shape_fn=shapes.matrix_diag)
register_op("MatrixDiagPart(input: T) -> diagonal: T", "T: type", shape_fn=shapes.matrix_diag_part)
register_op(
    "MatrixDiagPartV2(input: T, k: int32, padding_value: T) -> diagonal: T",
    "T: type", shape_fn=shapes.matrix_diag_part_v2,
)
register_op(
    "MatrixDiagPartV3(input: T, k: int32, padding_value: T) -> diagonal: T",
    "T: type", f"align: {ALIGNMENTS} = 'RIGHT_LEFT'", shape_fn=shapes.matrix_diag_part_v2,
)
register_op(
    "MatrixDiagV2(diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T) -> output: T",
    "T: type", shape_fn=shapes.matrix_diag_v2,
)
register_op(
    "MatrixDiagV3(diagonal: T, k: int32, num_rows: int32, num_cols: int32, padding_value: T) -> output: T",
    "T: type", f"align: {ALIGNMENTS} = 'RIGHT_LEFT'", shape_fn=shapes.matrix_diag_v2,
)
register_op(
    "MatrixExponential(input: T) -> output: T",
    f"T: {SOLVER_TYPES}", deprecated=(27, "Use Python implementation tf.linalg.matrix_exponential instead."),
    shape_fn=shapes.square_matrices,
)
register_op(
    "MatrixInverse(input: T) -> output: T",
    "adjoint: bool = false", f"T: {SOLVER_TYPES}", shape_fn=shapes.square_matrices,
)
register_op("MatrixLogarithm(input: T) -> output: T", "T: {complex64, complex128}", shape_fn=shapes.square_matrices)
register_op("MatrixSetDiag(input: T, diagonal: T) -> output: T", "T: type", shape_fn=shapes.matrix_set_diag)
register_op(
    "MatrixSetDiagV2(input: T, diagonal: T, k: int32) -> output: T",
    "T: type", shape_fn=shapes.matrix_set_diag_v2,
)
register_op(
    "MatrixSetDiagV3(input: T, diagonal: T, k: int32) -> output: T",
    "T: type", f"align: {ALIGNMENTS} = 'RIGHT_LEFT'", shape_fn=shapes.matrix_set_diag_v2,
)
register_op(
    "MatrixSolve(matrix: T, rhs: T) -> output: T",
    "adjoint: bool = false", f"T: {SOLVER_TYPES}", shape_fn=shapes.solve_square,
)
register_op(
    "MatrixSolveLs(matrix: T, rhs: T, l2_regularizer: double) -> output: T",
    f"T: {SOLVER_TYPES}", "fast: bool = true", shape_fn=shapes.solve_least_squares,
)
register_op("MatrixSquareRoot(input: T) -> output: T", f"T: {SOLVER_TYPES}", shape_fn=shapes.square_matrices)
register_op(
    "MatrixTriangularSolve(matrix: T, rhs: T) -> output: T",
    "lower: bool = true", "adjoint: bool = false", "T: {bfloat16, double, float, half, complex64, complex128}",
    shape_fn=shapes.triangular_solve,
)
register_op("Qr(input: T) -> q: T, r: T", "full_matrices: bool = false", f"T: {SOLVER_TYPES}", shape_fn=shapes.qr)
register_op(
    "SelfAdjointEig(input: T) -> output: T",
    "T: {double, float, half}", deprecated=(11, "Use SelfAdjointEigV2 instead."), shape_fn=shapes.eigen_stacked,
)
register_op(
    "SelfAdjointEigV2(input: T) -> e: T, v: T",
    "compute_v: bool = true", f"T: {SOLVER_TYPES}", shape_fn=shapes.eigen,
)
register_op(
    "Svd(input: T) -> s: T, u: T, v: T",
    "compute_uv: bool = true", "full_matrices: bool = false", f"T: {SOLVER_TYPES}", shape_fn=shapes.svd,
)
register_op(
    "TridiagonalMatMul(superdiag: T, maindiag: T, subdiag: T, rhs: T) -> output: T",
    f"T: {LOGARITHM_TYPES}", shape_fn=shapes.tridiagonal_mat_mul,
)
register_op(
    "TridiagonalSolve(diagonals: T, rhs: T) -> output: T",
    "partial_pivoting: bool = true", "perturb_singular: bool = false", f"T: {LOGARITHM_TYPES}",
    shape_fn=shapes.tridiagonal_solve,
)
