"""Datasets that choose elements or datasets: samples, shards of workers, the fastest of several."""

from __future__ import annotations

import asyncio
from typing import Any

from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction, OpKernelContext
from aexec.kernels.common.handles import shared
from aexec.kernels.datasets.arguments import Made, integer
from aexec.kernels.datasets.counted_dataset_ops import sharded
from aexec.resources.datasets.dataset import DatasetIterator, Element, Turns, dataset_of
from aexec.resources.datasets.random_seeds import Words, chosen_seeds

# Policies of AutoShardDataset.
_FILE, _AUTO, _DATA = 1, 0, 2
# A random word has this many bits more than a float's fraction.
_FRACTION_MASK = (1 << 23) - 1


class _Sampled(DatasetIterator):
    """Each element of the input with a probability of `rate`."""

    __slots__ = ("_rate", "_source", "_turns", "_words")

    def __init__(self, source: DatasetIterator, rate: float, seeds: tuple[int, int]) -> None:
        self._source = source
        self._rate = rate
        self._words = Words(*seeds)
        self._turns = Turns()

    async def next(self, context: OpKernelContext) -> Element | None:
        while True:
            element = await self._source.next(context)
            if element is None or (self._words.next() & _FRACTION_MASK) / (1 << 23) < self._rate:
                return element
            await self._turns.take()


@kernel("SamplingDataset", cost=0)
def sampling_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, rate: Any, seed: Any, seed2: Any) -> Any:
        source, probability = dataset_of(tensor), float(rate)
        seeds = chosen_seeds(integer(seed, "seed"), integer(seed2, "seed2"))
        return made.of(lambda one: _Sampled(one.begin(source), probability, seeds))

    return compute


@kernel("ChooseFastestDataset", "ExperimentalChooseFastestDataset", cost=0)
def choose_fastest_dataset(c: OpKernelConstruction) -> Compute:
    """The first of datasets that all have the same elements."""
    made = Made(c)

    def compute(*tensors: Any) -> Any:
        source = dataset_of(tensors[0])
        made.check(source)
        return made.of(source.iterator, source.cardinality())

    return compute


@kernel("AutoShardDataset", "ExperimentalAutoShardDataset", cost=0)
def auto_shard_dataset(c: OpKernelConstruction) -> Compute:
    """A worker's share of the elements.  Files are never divided among workers, elements are."""
    made, policy = Made(c), c.attr("auto_shard_policy")
    if policy == _FILE:
        raise errors.UnimplementedError(
            "AutoShardDataset cannot divide files among workers (auto_shard_policy FILE); use the policy DATA"
        )

    def compute(tensor: Any, num_workers: Any, index: Any) -> Any:
        source, workers, number = dataset_of(tensor), integer(num_workers, "num_workers"), integer(index, "index")
        if workers < 1 or not 0 <= number < workers:
            raise errors.InvalidArgumentError(
                f"Index must be between 0 and {workers - 1} (currently index = {number})."
            )
        if workers == 1 or policy not in (_AUTO, _DATA):
            return made.of(source.iterator, source.cardinality())
        return sharded(made, source, workers, number)

    return compute


class _Slept(DatasetIterator):
    """The input's elements, each after some time."""

    __slots__ = ("_element", "_seconds", "_source")

    def __init__(self, source: DatasetIterator, seconds: float) -> None:
        self._source = source
        self._seconds = seconds
        self._element: Element | None = None

    async def next(self, context: OpKernelContext) -> Element | None:
        if self._element is None:
            self._element = await self._source.next(context)
            if self._element is None:
                return None
        await asyncio.sleep(self._seconds)
        element, self._element = self._element, None
        return element


@kernel("SleepDataset", "ExperimentalSleepDataset", cost=0)
def sleep_dataset(c: OpKernelConstruction) -> Compute:
    made = Made(c)

    def compute(tensor: Any, sleep_microseconds: Any) -> Any:
        source, seconds = dataset_of(tensor), integer(sleep_microseconds, "sleep_microseconds") * 1e-6
        return made.of(lambda one: _Slept(one.begin(source), seconds), source.cardinality())

    return compute


class ThreadPool:
    """Stands for threads that TensorFlow's runtime would use; here it has none."""

    def __repr__(self) -> str:
        return "<ThreadPool>"


@kernel("ThreadPoolHandle", "ExperimentalThreadPoolHandle", cost=0)
def thread_pool_handle(c: OpKernelConstruction) -> Compute:
    return shared(c, ThreadPool, ThreadPool)
