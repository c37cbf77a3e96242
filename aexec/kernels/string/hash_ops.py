"""Kernels that map strings to hash buckets.  The hashes are in `aexec.numerics.farmhash`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.kernels.common.strings import lists_of, map_strings, string_cost
from aexec.numerics.farmhash import hash64, siphash
from aexec.numerics.farmhash_rows import fingerprint64_strings

__all__: list[str] = []

_HASH_COST = string_cost(800, 5)
# Strings that are hashed together: enough for NumPy, and a millisecond for each of its functions.
_AT_ONCE = 1 << 14


def _buckets(c: OpKernelConstruction) -> int:
    count: int = c.attr("num_buckets")
    if count < 1:
        raise errors.InvalidArgumentError(f"num_buckets must be positive, got {count}")
    return count


def _bucket(hash_of: Callable[[bytes], int], count: int) -> Callable[[Any], Any]:
    return lambda x: map_strings(lambda s: hash_of(s) % count, x, np.int64)


@kernel("StringToHashBucketFast", cost=_HASH_COST)
def string_to_hash_bucket_fast(c: OpKernelConstruction) -> Compute:
    """FarmHash Fingerprint64 modulo the number of buckets."""
    count = np.uint64(_buckets(c))

    def compute(x: Any) -> Any:
        out, done = np.empty(x.size, np.int64), 0
        for strings in lists_of(x, _AT_ONCE):  # hashing needs several copies of them
            out[done : done + len(strings)] = fingerprint64_strings(strings) % count
            done += len(strings)
        return out.reshape(x.shape)

    return compute


@kernel("StringToHashBucket", cost=_HASH_COST)
def string_to_hash_bucket(c: OpKernelConstruction) -> Compute:
    """TensorFlow's older hash."""
    return _bucket(hash64, _buckets(c))


@kernel("StringToHashBucketStrong", cost=string_cost(2000, 10))
def string_to_hash_bucket_strong(c: OpKernelConstruction) -> Compute:
    """SipHash with a key of two numbers."""
    key = c.attr("key")
    if len(key) != 2:
        raise errors.InvalidArgumentError("Key must have 2 elements")
    return _bucket(lambda s: siphash(s, key), _buckets(c))
