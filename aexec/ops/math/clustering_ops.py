"""Initialisation and assignment of k-means clusters."""

from aexec.framework.op_contract.op_registry import register_op
from aexec.framework.shape_functions import common_shape_fns as common

register_op(
    "KMC2ChainInitialization(distances: float, seed: int64) -> index: int64", shape_fn=common.scalar,
)
register_op(
    "KmeansPlusPlusInitialization(points: float, num_to_sample: int64, seed: int64, num_retries_per_sample: int64) "
    "-> samples: float",
    shape_fn=common.unknown_shape,
)
register_op(
    "NearestNeighbors(points: float, centers: float, k: int64) -> nearest_center_indices: int64, "
    "nearest_center_distances: float",
    shape_fn=common.unknown_shape,
)
